#!/usr/bin/env python3
"""judge.py BUILD_DIR - how much of a model each way of quantizing keeps, as tables in markdown. `make quality` calls it.

In the environment:
  MODELS=DIR     a folder of checkpoints to judge by; without it, the bundled one
  LLAMA_CPP=DIR  llama.cpp, built there (llama-quantize, llama-imatrix, llama-perplexity): its files at the same types and size are what
                 ours are held against; without it there are no ratios
  TYPES="T T"    types to judge, of those below; without it, all
  CHUNKS=N       calibrate by so many windows of 512 tokens; without it, 128
  TEXTS=DIR      where make_texts.py has put its texts; without it they are made, and if that fails only what needs no
                 calibration is judged, on tests/data/heldout.txt

Each model is brought to bf16 first: that is what both start from, and what divergence is measured against (`aprrun kld`, windows of
256). llama.cpp is told the type of each tensor of our file, so that both have the same types, and that is checked. Intervals: 95 %,
whole windows drawn, of ratios in pairs. Everything is kept in BUILD_DIR/quality: what is there is not computed again.
"""
import collections, glob, hashlib, json, math, os, random, resource, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data")
WINDOW, DRAWS = 256, 2000
CHUNK, CHUNKS = 512, int(os.environ.get("CHUNKS", "128"))  # what everything is calibrated by, theirs and ours: so many windows of so many tokens of the same text
# ours, and the mixture of llama.cpp's that the list of types is laid over
TYPES = {"q4_k_m": "Q4_K_M", "mxfp4": "MXFP4_MOE", "nvfp4": "Q4_0", "iq4_nl": "IQ4_NL", "iq4_xs": "IQ4_XS", "q3_k_m": "Q3_K_M", "q3_k": "Q3_K_M", "q2_k": "Q2_K",
         "iq3_s": "IQ3_S", "iq3_xxs": "IQ3_XXS", "iq2_s": "IQ2_S", "iq2_xs": "IQ2_XS", "iq2_xxs": "IQ2_XXS", "iq1_m": "IQ1_M", "iq1_s": "IQ1_S",
         "q2_0": "Q2_0", "tq2_0": "TQ2_0", "tq1_0": "TQ1_0", "q1_0": "Q1_0"}

# name, words that aprquant's --help must have, options, what is calibrated by; {imatrix} and {text} are files, {size} that of "none"
METHODS = [
    ("none", [], []),
    ("imatrix", ["--imatrix"], ["--imatrix", "{imatrix}"]),
    ("ldlq, own text", ["--method", "itself"], ["--method", "ldlq"]),
    ("ldlq", ["--method", "--calibration"], ["--method", "ldlq", "--calibration", "{text}", "--window", str(CHUNK), "--tokens", str(CHUNK * CHUNKS)]),
    ("allocated", ["--target-size", "--calibration"], ["--target-size", "{size}", "--calibration", "{text}", "--state", "{state}"]),
]
THEIRS = ["llama.cpp", "llama.cpp, imatrix"]


def note(*words): print("judge:", *words, file=sys.stderr, flush=True)


def run(command, log=None):
    """Its stdout, and the seconds of processor that it took; fails with what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if log: open(log, "w").write(done.stdout + done.stderr)
    if done.returncode != 0: sys.exit(f"judge: {' '.join(command)}: exit {done.returncode}: {(done.stderr or done.stdout)[-600:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def threads(): return os.environ.get("OMP_NUM_THREADS") or str(os.cpu_count())


def sum_of(path, cache={}):
    key = (path, os.stat(path).st_mtime_ns)
    if key not in cache: cache[key] = hashlib.sha256(open(path, "rb").read()).hexdigest()[:20]
    return cache[key]


class House:
    """The tools, where things are kept, and what is judged by."""
    def __init__(self, build):
        self.build, self.kept = os.path.abspath(build), os.path.join(os.path.abspath(build), "quality")
        os.makedirs(os.path.join(self.kept, "kld"), exist_ok=True)
        self.help = self.ours("aprquant", "--help")[0] + self.ours("aprrun", "--help")[0]
        self.theirs = self.find_theirs()
        folder = os.environ.get("MODELS")
        found = sorted(glob.glob(os.path.join(folder, "*", "config.json"))) if folder else [os.path.join(DATA, "tiny-qwen2", "config.json")]
        self.models = [os.path.dirname(p) for p in found]
        if not self.models: sys.exit(f"judge: there is no folder with a config.json in MODELS={folder}")
        self.find_texts()

    def ours(self, tool, *words, log=None): return run([os.path.join(self.build, tool), *words], log)

    def find_theirs(self):
        root, names = os.environ.get("LLAMA_CPP"), ("llama-quantize", "llama-imatrix", "llama-perplexity")
        if not root:
            note("no LLAMA_CPP: nothing to hold the figures against. git clone https://github.com/ggml-org/llama.cpp, and build", *names)
            return None
        for bin in (os.path.join(root, "build", "bin"), os.path.join(root, "bin"), root):
            if all(os.path.exists(os.path.join(bin, n)) for n in names): return bin
        sys.exit(f"judge: LLAMA_CPP={root} has not {', '.join(names)} in build/bin: build these targets there")

    def find_texts(self):
        folder = os.environ.get("TEXTS") or os.path.join(self.kept, "texts")
        if not os.path.exists(os.path.join(folder, "heldout2.txt")):
            made = subprocess.run([sys.executable, os.path.join(HERE, "make_texts.py"), folder])
            if made.returncode != 0: note("without texts: nothing is calibrated, and heldout.txt alone judges")
        self.texts = {"heldout": os.path.join(DATA, "heldout.txt")}
        second, calibration = (os.path.join(folder, n) for n in ("heldout2.txt", "calibration.txt"))
        if os.path.exists(second): self.texts["heldout2"] = second
        self.calibration = calibration if os.path.exists(calibration) else None


class Subject:
    """One model, its files in a folder of its own."""
    def __init__(self, house, checkpoint):
        self.house, self.name = house, os.path.basename(os.path.normpath(checkpoint))
        self.folder = os.path.join(house.kept, self.name)
        os.makedirs(self.folder, exist_ok=True)
        self.ref = self.file("bf16.gguf")
        if not os.path.exists(self.ref): house.ours("aprquant", "-q", "--to", "bf16", "--allow-requantize", checkpoint, self.ref)
        kind = json.load(open(os.path.join(checkpoint, "config.json"))).get("model_type")
        self.types = [t for t in chosen_types() if not (t == "mxfp4" and kind == "gpt_oss")]  # its experts are that already

    def file(self, name): return os.path.join(self.folder, name)

    def imatrix(self, theirs):
        """The file made of the calibration text by their tool or ours; None where there is none."""
        path, house = self.file("theirs.imatrix.gguf" if theirs else "ours.imatrix.gguf"), self.house
        if os.path.exists(path): return path
        if house.calibration is None or (not theirs and "imatrix" not in house.ours("aprrun", "--help")[0]): return None
        note(f"{self.name}: importance by {'llama-imatrix' if theirs else 'aprrun imatrix'}")
        if not theirs: house.ours("aprrun", "imatrix", "-q", self.ref, house.calibration, "-c", str(CHUNK), "--chunks", str(CHUNKS), "-o", path)
        else:
            wide = self.file("f32.gguf")  # the fastest there
            house.ours("aprquant", "-q", "-f", "--to", "f32", self.ref, wide)
            run([os.path.join(house.theirs, "llama-imatrix"), "--no-ppl", "-t", threads(), "-c", str(CHUNK), "--chunks", str(CHUNKS), "-m", wide,
                 "-f", house.calibration, "-o", path + ".part"], self.file("imatrix.log"))
            os.replace(path + ".part", path)
            os.remove(wide)
        return path

    def shown(self, path): return json.loads(self.house.ours("aprconv", "show", "--json", "--no-metadata", path)[0])

    def types_of(self, path): return {t["name"]: t["dtype"] for t in self.shown(path)["tensors"]}

    def tensor_bytes(self, path): return str(self.shown(path)["tensor_bytes"]) if os.path.exists(path) else None

    def quantize(self, kind, method):
        """(file, seconds of processor); None where the tools, or the texts, do not offer the method."""
        words = next((m for m in METHODS if m[0] == method), None)
        if words is None: return self.quantize_theirs(kind, method)
        if not all(w in self.house.help for w in words[1]): return None
        values = {"text": self.house.calibration, "state": self.file("damages.json"), "size": self.tensor_bytes(self.made(kind, "none"))}
        if any("{imatrix}" in w for w in words[2]): values["imatrix"] = self.imatrix(False)
        if any("{%s}" % k in w and v is None for w in words[2] for k, v in values.items()): return None
        out = self.made(kind, method)
        return out, self.house.ours("aprquant", "-q", "-f", "--to", kind, *(w.format(**values) for w in words[2]), self.ref, out)[1]

    def made(self, kind, method): return self.file(f"{kind}-{method.replace(', ', '-').replace(' ', '-')}.gguf")

    def quantize_theirs(self, kind, method):
        if self.house.theirs is None: return None
        types = self.types_of(self.made(kind, "none"))
        listed = self.file(f"{kind}.types")
        with open(listed, "w") as f:
            for name, dtype in types.items():
                if dtype != "f32": f.write("^" + name.replace(".", r"\.") + "$=" + dtype + "\n")
        out, more = self.made(kind, method), []
        if method.endswith("imatrix"):
            if self.house.calibration is None: return None
            more = ["--imatrix", self.imatrix(True)]
        command = [os.path.join(self.house.theirs, "llama-quantize"), *more, "--tensor-type-file", listed, self.ref, out, TYPES[kind]]
        seconds = run(command, self.file("quantize.log"))[1]
        other = {n: (t, types.get(n)) for n, t in self.types_of(out).items() if types.get(n) != t}
        if other: sys.exit(f"judge: {self.name} {kind}: llama-quantize gave other types than asked for: {other}")
        return out, seconds

    def kld(self, path, text):
        """What aprrun kld says; kept under the sums of everything that it reads."""
        key = "-".join((sum_of(path), sum_of(self.ref), sum_of(self.house.texts[text])))
        kept = os.path.join(self.house.kept, "kld", key + ".json")
        if not os.path.exists(kept):
            answer = self.house.ours("aprrun", "kld", path, "--ref", self.ref, self.house.texts[text], "--kv", "f32", "--window", str(WINDOW), "--json")[0]
            open(kept, "w").write(answer)
        return json.load(open(kept))

    def perplexity_kld(self, path):
        """The mean divergence that llama-perplexity finds on heldout.txt, in the second half of each window; NaN without it."""
        if self.house.theirs is None: return math.nan
        kept = os.path.join(self.house.kept, "kld", f"{sum_of(path)}-{sum_of(self.ref)}-theirs.txt")
        if not os.path.exists(kept):
            tool, text, base = os.path.join(self.house.theirs, "llama-perplexity"), self.house.texts["heldout"], self.file("base.kld")
            if not os.path.exists(base): run([tool, "-t", threads(), "-m", self.ref, "-f", text, "-c", str(WINDOW), "--kl-divergence-base", base], self.file("base.log"))
            command = [tool, "-t", threads(), "-m", path, "--no-repack", "-f", text, "-c", str(WINDOW), "--kl-divergence-base", base, "--kl-divergence"]
            for _ in range(5):  # it ends, now and then, before its log has been written
                said = run(command, self.file("kld.log"))[0]
                line = next((l for l in said.splitlines() if l.startswith("Mean") and "KLD" in l), None)
                if line: break
            else: sys.exit(f"judge: {' '.join(command)} says no 'Mean KLD'")
            open(kept, "w").write(line.split(":")[1].split()[0])
        return float(open(kept).read())


def chosen_types():
    asked = os.environ.get("TYPES", "").split()
    unknown = [t for t in asked if t not in TYPES]
    if unknown: sys.exit(f"judge: TYPES has {' '.join(unknown)}; it may have {' '.join(TYPES)}")
    return [t for t in TYPES if not asked or t in asked]


def chosen_methods():
    """"none" first: what the others are given follows from its file."""
    every = ["none"] + THEIRS + [m[0] for m in METHODS[1:]]
    asked = os.environ.get("METHODS")
    return [m for m in every if not asked or m == "none" or m in asked.split(";")]


def judge(house):
    """Rows: model, type, method, bytes, seconds, {text: answer of kld}."""
    rows, missing = [], collections.OrderedDict()
    for checkpoint in house.models:
        subject = Subject(house, checkpoint)
        for kind in subject.types:
            for method in chosen_methods():
                made = subject.quantize(kind, method)
                if made is None:
                    missing[method] = True
                    continue
                path, seconds = made
                answers = {t: subject.kld(path, t) for t in house.texts}
                rows.append(dict(model=subject.name, type=kind, method=method, bytes=os.path.getsize(path), seconds=seconds, kld=answers,
                                 theirs=math.nan, subject=subject, path=path))
                note(f"{subject.name} {kind} {method}: {answers['heldout']['kl_mean']:.5f}")
    return rows, list(missing)


def confirm(rows):
    """What llama-perplexity says of each file: at the end, for it takes longer than everything else."""
    for r in rows: r["theirs"] = r.pop("subject").perplexity_kld(r.pop("path"))


def ratio_of(pairs):
    """Geometric mean over models of sum(a) / sum(b), with its interval: windows are drawn for each model, both files' the same."""
    def mean(sums): return math.exp(sum(math.log(a / b) for a, b in sums) / len(sums))
    die = random.Random(0)
    def draw(a, b):
        at = die.choices(range(len(a)), k=len(a))
        return sum(a[i] for i in at), sum(b[i] for i in at)
    draws = sorted(mean([draw(a, b) for a, b in pairs]) for _ in range(DRAWS))
    return mean([(sum(a), sum(b)) for a, b in pairs]), draws[DRAWS // 40], draws[-DRAWS // 40 - 1]


def ratio_text(rows, row, base, text):
    """row (a model, or None for all of them) of a type and method against another method."""
    pairs = []
    for r in rows:
        if (r["type"], r["method"]) != row[1:] or row[0] not in (None, r["model"]): continue
        other = next((b for b in rows if (b["model"], b["type"], b["method"]) == (r["model"], r["type"], base)), None)
        if other: pairs.append((r["kld"][text]["kl_by_window"], other["kld"][text]["kl_by_window"]))
    return "%.3f (%.3f to %.3f)" % ratio_of(pairs) if pairs else "–"


def table(head, lines):
    return "\n".join("| " + " | ".join(str(c) for c in line) + " |" for line in [head, ["---"] * len(head)] + lines) + "\n"


def summary(house, rows):
    """Geometric means over the models: a line for each type, text and method."""
    lines = []
    for kind in chosen_types():
        for text in house.texts:
            for method in [m[0] for m in METHODS] + THEIRS[1:]:
                if not any((r["type"], r["method"]) == (kind, method) for r in rows): continue
                lines.append([kind, text, method] + [ratio_text(rows, (None, kind, method), base, text) for base in THEIRS])
    return table(["type", "text", "method", "to llama.cpp", "to llama.cpp with imatrix"], lines)


def details(house, rows):
    head = ["model", "type", "method", "bytes", "processor, s"] + [f"KL, {t}" for t in house.texts] + ["same top", "second half", "llama-perplexity"]
    lines = []
    for r in rows:
        kl = ["%.5f (%.5f to %.5f)" % (a["kl_mean"], *a["kl_mean_95"]) for a in r["kld"].values()]
        first = r["kld"]["heldout"]
        lines.append([r["model"], r["type"], r["method"], r["bytes"], "%.2f" % r["seconds"]] + kl +
                     ["%.3f" % first["same_top"], "%.5f" % first["kl_mean_second_half"], "–" if math.isnan(r["theirs"]) else "%.5f" % r["theirs"]])
    return table(head, lines)


def main(build):
    house = House(build)
    rows, missing = judge(house)
    if os.environ.get("CONFIRM", "1") == "0": house.theirs = None
    confirm(rows)
    with open(os.path.join(house.kept, "quality.json"), "w") as f: json.dump(rows, f, indent=1)
    print("Divergence against llama.cpp's at the same types, geometric mean over", ", ".join(os.path.basename(m) for m in house.models) + ":\n")
    print(summary(house, rows))
    print(details(house, rows))
    if missing: print("not offered here, or not possible without texts or llama.cpp:", ", ".join(missing))
    print("kept:", os.path.join(house.kept, "quality.json"))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"): sys.exit(print(__doc__, file=sys.stderr) or 2)
    main(sys.argv[1])
