#!/usr/bin/env python3
"""perplexities.py DATA BUILD OURS THEIRS - the perplexity of one window of text with a model of each type: ours and llama.cpp's.

Each type that aprquant writes into a GGUF: tests/data/tiny-qwen2 is quantized, and both compute the logits of 500 tokens of heldout.txt.
types.txt is what it printed last. Exit 1 if a perplexity differs by more than 2 % or a file does not load. llama.cpp rounds the inputs of products to 8 bits.
"""
import array, math, os, subprocess, sys

TYPES = ("q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 nvfp4 iq4_nl mxfp4 iq4_xs iq3_s q3_k iq3_xxs q2_k iq2_s iq2_xs q2_0 tq2_0 iq2_xxs iq1_m tq1_0 "
         "iq1_s q1_0").split()
TOKENS, BOUND = 500, 0.02


def run(*command): return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def perplexity(path, ids):
    logits = array.array("f")
    with open(path, "rb") as f: logits.frombytes(f.read())
    n, sum_of_losses = len(logits) // len(ids), 0.0
    for i in range(len(ids) - 1):
        row = logits[i * n:(i + 1) * n]
        most = max(row)
        sum_of_losses += most + math.log(sum(math.exp(x - most) for x in row)) - row[ids[i + 1]]
    return math.exp(sum_of_losses / (len(ids) - 1))


def measure(kind, model, build, tools):
    made = run(os.path.join(build, "aprquant"), "-q", "-f", "--to", kind, model, "type.gguf")
    if made.returncode: return None, made.stderr
    found = []
    ids = [int(i) for i in open("type.ids").read().split()]
    for tool in tools:
        done = run(tool, "logits", "type.gguf", "type.ids", "type.f32")
        if done.returncode: return None, f"{tool}: exit {done.returncode}: {done.stderr[-200:]}"
        found.append(perplexity("type.f32", ids))
    return found, ""


def main(data, build, ours, theirs):
    model, n_failed = os.path.join(data, "tiny-qwen2"), 0
    ids = run(os.path.join(build, "aprrun"), "tokenize", model, "-f", os.path.join(data, "heldout.txt"), "--ids").stdout.split()[:TOKENS]
    with open("type.ids", "w") as f: f.write(" ".join(ids))
    print("%-9s %10s %10s %8s" % ("type", "ours", "llama.cpp", "ratio"))
    for kind in TYPES:
        found, problem = measure(kind, model, build, (ours, theirs))
        is_near = found is not None and abs(found[1] / found[0] - 1.0) <= BOUND
        n_failed += not is_near
        print("%-9s %10.3f %10.3f %8.4f%s" % (kind, *found, found[1] / found[0], "" if is_near else "  FAILED") if found else f"{kind:9} FAILED {problem}", flush=True)
    return n_failed


if __name__ == "__main__":
    if len(sys.argv) != 5: sys.exit(print(__doc__, file=sys.stderr) or 2)
    sys.exit(main(*sys.argv[1:]) > 0)
