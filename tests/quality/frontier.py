#!/usr/bin/env python3
"""frontier.py - bits against divergence, for every way of making a file of few bits: measured as a table, and drawn.

  frontier.py measure BUILD_DIR OUT.csv   takes minutes a file; the environment is that of judge.py, and MIXTURES="IQ2_S Q2_K" and
                                          TARGETS="2.5 3.0" choose among llama.cpp's mixtures and our targets
  frontier.py draw IN.csv OUT.svg         a panel for each model

llama.cpp's mixtures are made with its importance matrix, our types by `--method ldlq`, our targets by `--target-bpw` and ldlq, all from the
same windows of the same text. Bits are those of all weights: the file without what is not weights, by the number of weights.
"""
import csv, json, math, os, sys

import judge

MIXTURES = "IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M Q2_K_S Q2_K IQ3_XXS IQ3_XS Q3_K_S IQ3_S IQ3_M Q3_K_M IQ4_XS".split()
TARGETS = "2.5 3.0 3.5".split()
COLUMNS = ["model", "by", "name", "bytes", "bits"] + ["heldout", "heldout2"]
THEIRS, TYPES, OUR_TARGETS = "llama.cpp", "ldlq", "target"


def chosen(variable, all_of_them): return os.environ[variable].split() if variable in os.environ else all_of_them


def files(house, subject):
    """(by, name, path) of each file, which is made now and may be removed after."""
    out, text = subject.file("frontier.gguf"), house.calibration
    tokens = ["--calibration", text, "--window", str(judge.CHUNK), "--tokens", str(judge.CHUNK * judge.CHUNKS)]
    for name in chosen("MIXTURES", MIXTURES):
        judge.run([os.path.join(house.theirs, "llama-quantize"), "--imatrix", subject.imatrix(True), subject.ref, out, name])
        yield THEIRS, name, out
    for name in judge.chosen_types():
        house.ours("aprquant", "-q", "-f", "--to", name, "--method", "ldlq", *tokens, subject.ref, out)
        yield TYPES, name, out
    for name in chosen("TARGETS", TARGETS):
        house.ours("aprquant", "-q", "-f", "--target-bpw", name, "--method", "ldlq", *tokens, subject.ref, out)
        yield OUR_TARGETS, name, out


def measure(build, path):
    house = judge.House(build)
    if house.theirs is None or house.calibration is None: sys.exit("frontier: LLAMA_CPP and the texts are needed")
    with open(path, "w", newline="") as f:
        table = csv.writer(f)
        table.writerow(COLUMNS)
        for checkpoint in house.models:
            subject = judge.Subject(house, checkpoint)
            shown = subject.shown(subject.ref)
            for by, name, out in files(house, subject):
                n_bytes = os.path.getsize(out)
                bits = 8 * (n_bytes - shown["file_bytes"] + shown["tensor_bytes"]) / shown["n_weights"]
                means = [subject.kld(out, t)["kl_mean"] for t in ("heldout", "heldout2")]
                table.writerow([subject.name, by, name, n_bytes, "%.3f" % bits] + ["%.4f" % m for m in means])
                f.flush()
                judge.note(subject.name, by, name, "%.3f bits: %.4f" % (bits, means[0]))


WIDTH, HEIGHT, LEFT, TOP, GAP = 370, 250, 52, 34, 62  # of a panel, and what is around it
MARKS = {THEIRS: "#8a8f98", TYPES: "#1f6feb", OUR_TARGETS: "#d4572a"}
SAYS = {THEIRS: "llama.cpp's mixtures, with imatrix", TYPES: "our types, ldlq", OUR_TARGETS: "--target-bpw with ldlq"}


def mark(by, x, y):
    if by == THEIRS: return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="none" stroke="{MARKS[by]}" stroke-width="1.5"/>'
    if by == TYPES: return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{MARKS[by]}"/>'
    return f'<path d="M{x - 4:.1f} {y:.1f} l4 -4 l4 4 l-4 4 z" fill="{MARKS[by]}"/>'


def text(x, y, words, more=""): return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


def best(points):
    """The lower left edge: each better than all with fewer bits."""
    edge = []
    for x, y in sorted(points):
        if not edge or y < edge[-1][1]: edge.append((x, y))
    return edge


def panel(rows, model, left, top, spans):
    (x0, x1), (y0, y1) = spans
    at = lambda bits: left + (bits - x0) / (x1 - x0) * WIDTH
    up = lambda kl: top + (math.log(y1) - math.log(kl)) / (math.log(y1) - math.log(y0)) * HEIGHT
    lines = [text(left, top - 10, model, 'font-weight="bold"')]
    for bits in range(math.ceil(x0), math.floor(x1) + 1):
        lines.append(f'<path d="M{at(bits):.1f} {top} v{HEIGHT}" stroke="#e4e6ea"/>' + text(at(bits), top + HEIGHT + 16, bits, 'text-anchor="middle"'))
    for kl in (0.03, 0.1, 0.3, 1, 3):
        if y0 <= kl <= y1: lines.append(f'<path d="M{left} {up(kl):.1f} h{WIDTH}" stroke="#e4e6ea"/>' + text(left - 6, up(kl) + 4, kl, 'text-anchor="end"'))
    for by in MARKS:
        points = [(float(r["bits"]), float(r["heldout"])) for r in rows if (r["model"], r["by"]) == (model, by)]
        points = [p for p in points if x0 <= p[0] <= x1 and y0 <= p[1] <= y1]
        if by != OUR_TARGETS and points:
            path = " L".join(f"{at(x):.1f} {up(y):.1f}" for x, y in best(points))
            lines.append(f'<path d="M{path}" fill="none" stroke="{MARKS[by]}" stroke-opacity="0.6"/>')
        lines += [mark(by, at(x), up(y)) for x, y in points]
    return lines


def draw(path, out):
    rows = list(csv.DictReader(open(path)))
    models = list(dict.fromkeys(r["model"] for r in rows))
    spans = (1.5, 5.0), (0.015, 4.0)
    width, height = 2 * (LEFT + WIDTH) + 24, TOP + (len(models) + 1) // 2 * (HEIGHT + GAP) + 30
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="#24292f">',
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for i, model in enumerate(models): lines += panel(rows, model, LEFT + i % 2 * (LEFT + WIDTH), TOP + i // 2 * (HEIGHT + GAP), spans)
    y = height - 34
    lines.append(text(LEFT, y - 8, "bits of a weight; divergence from the original on heldout.txt, logarithmic; lower is better"))
    for i, by in enumerate(MARKS): lines += [mark(by, LEFT + 4 + 250 * i, y + 12), text(LEFT + 16 + 250 * i, y + 16, SAYS[by])]
    open(out, "w").write("\n".join(lines + ["</svg>"]) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("measure", "draw"): sys.exit(print(__doc__, file=sys.stderr) or 2)
    (measure if sys.argv[1] == "measure" else draw)(*sys.argv[2:])
