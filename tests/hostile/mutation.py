"""Mutants through every tool: what is made with success must be read by our own reader and be as sound as what it was made of."""
import collections, copy, json, os, random, re, shutil, struct, sys, tempfile, time

from . import models as M, mutants as X
from .containers import *
from .oracle import *

TYPES = ["q4_k_m", "q4_k", "q5_k", "q6_k", "q8_0", "q4_0", "mxfp4", "fp8", "f16", "bf16", "f32", "q5_k_m", "nvfp4"]


class Mutation:
    def __init__(self, args):
        self.args, self.build = args, os.path.abspath(args.build)
        self.env = dict(os.environ, OMP_NUM_THREADS="1", LC_ALL="C.UTF-8", TMPDIR="/tmp")
        self.env.setdefault("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1:abort_on_error=0:exitcode=99")
        self.env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=0")
        self.runs, self.mutants, self.kinds, self.codes = 0, 0, collections.Counter(), collections.Counter()
        self.finds = collections.defaultdict(list)
        self.limit = args.limit

    def go(self, r, argv, new=(), made=None, **more):
        """Runs argv in the mutant's folder. `new`: what exit 0 may leave; anything else left is a fault."""
        before = set(os.listdir(self.work))
        a = run([os.path.join(self.build, argv[0])] + argv[1:], self.work, self.env, self.limit, **more)
        self.runs += 1
        self.codes[argv[0] + (" " + argv[1] if argv[0] == "aprconv" else ""), a.code] += 1
        after = set(os.listdir(self.work))
        left = after - before - (set(new) if a.code == 0 or made else set())
        if left:
            a.faults.append("left: exit %s leaves %s" % (a.code, sorted(left)))
        if a.code == 0 and made is None:
            for name in new:
                if name not in after:
                    a.faults.append("missing: exit 0, but %s is not there" % name)
        if before - after:
            a.faults.append("gone: %s" % sorted(before - after))
        for name in after - before:
            size = size_of(os.path.join(self.work, name))
            if size > (64 << 20):
                a.faults.append("large: %s has %d bytes" % (name, size))
        # an APR whose records of the way contradict its tensors is found out by what it would become
        if b"bug in aprkit" in a.err + a.out and not any(n.endswith(".apr") and n.startswith("m") for n in argv):
            a.faults.append("unproved: " + re.sub(r".*please report it", "", (a.err + a.out).decode("utf-8", "replace").replace("\n", " "))[:200])
        for f in a.faults:
            self.say(f, argv, a)
        return a

    def say(self, fault, argv, a=None):
        kind = re.sub(r"[0-9]+", "N", fault.split(":")[0] + ":" + fault.split(":")[1][:70] if ":" in fault else fault)
        self.finds[kind].append((self.seed, self.what, " ".join(argv), fault, a.err.decode("utf-8", "replace")[:300] if a else ""))
        self.faulty = True

    # ---- what is done to a model that may be sound ----

    def checked(self, r, path):
        a = self.go(r, ["aprconv", "check", "--json", path])
        return a.code, a.json() or {}

    def output(self, r, stem):
        return stem + r.choice([".apr", ".gguf", ""])

    def use(self, r, path, words, golden):
        code, said = self.checked(r, path)
        if r.random() < 0.6:
            self.go(r, r.choice([["aprconv", "show", path], ["aprconv", "show", "--json", path]]))
        flags = [f for f in ("--allow-loss", "--allow-incomplete") if r.random() < 0.6]
        if r.random() < 0.05: flags += ["--profile", "aprender"]
        if r.random() < 0.1: flags += ["--saturate"]
        for stem in ("one", "two"):
            out = self.output(r, stem)
            as_json = ["--json"] if r.random() < 0.2 else []
            a = self.go(r, ["aprconv", "convert"] + as_json + flags + [path, out], new=[out])
            if a.code == 0:
                self.agree(r, path, code, said, out, ["aprconv", "convert"] + flags + [path, out], same=True, made=a)
                if path.endswith(".gguf") and out.endswith(".apr"):
                    self.back(r, path, out, flags)
        to, out = r.choice(TYPES), self.output(r, "quant")
        more = ["--allow-requantize"] if r.random() < 0.5 else []
        argv = ["aprquant", "-q", "--to", to] + more + flags + [path, out]
        a = self.go(r, argv, new=[out])
        if a.code == 0:
            self.agree(r, path, code, said, out, argv, same=False)
        if r.random() < 0.6:
            self.go(r, ["aprplan", "--vram", r.choice(["8G", "100M", "80G"])] + r.choice([[], ["--json"], ["-c", "100000"], ["-t", r.choice(TYPES)]]) + [path])
        if r.random() < 0.7:
            if words:
                self.go(r, ["aprrun", path, "-p", r.choice(["hi", "", "In the beginning", "\x1b[31m\u00e9"]), "-n", "2", "--threads", "1"] + r.choice([[], ["--chat"], ["--json"], ["--device", "ref"]]), prints_text=True)
            elif golden:
                self.go(r, ["aprrun", "golden", "--threads", "1", path, golden])
        if r.random() < 0.15:
            self.go(r, ["aprrun", "verify", "--threads", "1", path], prints_text=True)

    def agree(self, r, path, code, said, out, argv, same, made=None):
        got, answer = self.checked(r, out)
        if got == code == 4 and said.get("findings") and all(f.get("kind", f.get("what")) == "attached file" for f in said["findings"]):
            return  # copied as it was
        if got not in (0, 1):
            self.say("lie: exit 0, but check of %s ends with %s (input's with %s)" % (kind_of(out), got, code), argv)
            return
        if not said.get("tensors", {}).get("judged", True) and not answer.get("n_nonfinite"):
            return  # of a model whose settings are refused, tensors are not held against it
        if code == 0 and got != 0:
            self.say("lie: check of the input 0, of %s %s: %s" % (kind_of(out), got, json.dumps(answer)[:300]), argv)
        if code not in (0, 1) and not (said.get("findings") and all(f["kind"] == "attached file" for f in said["findings"])):
            self.say("lie: %s made of what check refuses with %s" % (kind_of(out), code), argv)
        if same and "--profile" not in argv and bool(said.get("n_nonfinite")) != bool(answer.get("n_nonfinite")):
            self.say("lie: not finite: %s in the input, %s in %s" % (said.get("n_nonfinite"), answer.get("n_nonfinite"), kind_of(out)), argv)
        if same and "--allow-loss" not in argv and r.random() < 0.5:
            d = self.go(r, ["aprconv", "diff", "--json", path, out])
            j = d.json() or {}
            if d.code not in (0, 1):
                self.say("lie: diff of input and %s ends with %s" % (kind_of(out), d.code), ["aprconv", "diff", path, out])
            elif not said.get("n_nonfinite") and not packed(path, self.work) and "--profile" not in argv:
                other = [t["name"] for t in j.get("tensors", []) if t["differs"] and not t["name"].startswith("rope_f") and not (t["b"] is None and b"left out" in made.out) and not (t.get("max_error_over_rms") or 0 if "max_error" in t else 1) < 1e-5]
                if other:
                    self.say("lie: %d tensors differ in %s: %s" % (len(other), kind_of(out), other[:5]), ["aprconv", "diff", path, out])
            else:
                for x in j.get("differences", []):
                    self.notes[("differs in %s: %s" % (kind_of(out), json.dumps(x)))[:140]] += 1

    def back(self, r, path, out, flags):
        if os.path.exists(os.path.join(self.work, "back.gguf")):
            return
        a = self.go(r, ["aprconv", "convert", "-q", out, "back.gguf"] + [f for f in ("--allow-loss", "--allow-incomplete") if f in flags], new=["back.gguf"])
        if a.code != 0:
            self.say("lie: the APR of a GGUF does not go back: exit %s" % a.code, ["aprconv", "convert", out, "back.gguf"], a)
        elif open(os.path.join(self.work, path), "rb").read() != open(os.path.join(self.work, "back.gguf"), "rb").read():
            self.say("lie: other bytes come back", ["aprconv", "convert", out, "back.gguf"])

    # ---- mutants ----

    def file_of(self, r, models, ending, mutate, donors):
        name, path, words, golden = r.choice(models)
        blob = open(path, "rb").read()
        blob, what = mutate(r, blob, donors)
        self.what = "%s%s: %s" % (name, ending, what)
        open(os.path.join(self.work, "m" + ending), "wb").write(blob)
        self.use(r, "m" + ending, words, golden)

    def gguf(self, r): self.file_of(r, self.models.ggufs, ".gguf", X.mutate_gguf, self.gguf_donors)
    def apr(self, r): self.file_of(r, self.models.aprs, ".apr", X.mutate_apr, self.apr_donors)

    def folder(self, r, models=None):
        name, path, words, golden = r.choice(models or self.models.folders)
        shutil.copytree(path, os.path.join(self.work, "m"))
        for n in os.listdir(os.path.join(self.work, "m")):
            os.chmod(os.path.join(self.work, "m", n), 0o644)
            if n.startswith("golden"): os.unlink(os.path.join(self.work, "m", n))
        self.what = name
        return words, golden

    def change(self, r, name, mutate, *more):
        path = os.path.join(self.work, "m", name)
        blob, what = mutate(r, open(path, "rb").read(), *more)
        open(path, "wb").write(blob)
        self.what += "/%s: %s" % (name, what)

    def weights(self, r):
        words, golden = self.folder(r)
        names = [n for n in os.listdir(os.path.join(self.work, "m")) if n.endswith(".safetensors")]
        self.change(r, r.choice(sorted(names)), X.mutate_safetensors, self.header_donors)
        self.use(r, "m", words, golden)

    def json_file(self, r, name, donors=()):
        if r.random() < 0.1:
            self.change(r, name, X.mutate_text)
            return

        def mutate(r, blob):
            root = load_json(blob.decode())
            what = "; ".join(X.mutate_json(r, root, donors) for _ in range(r.choice([1, 1, 2, 3])))
            return dump_json(root), what
        self.change(r, name, mutate)

    def config(self, r):
        words, golden = self.folder(r)
        names = sorted(set(os.listdir(os.path.join(self.work, "m"))) & {"config.json", "params.json"})
        if not names:
            return
        self.json_file(r, names[0], self.config_donors)
        if r.random() < 0.3: self.go(r, ["aprplan", "--vram", "8G", "m/" + names[0]])
        self.use(r, "m", words, golden)

    def words(self, r):
        self.folder(r, self.models.folders[:1])
        folder = os.path.join(self.work, "m")
        name = r.choice(["tokenizer.json"] * 4 + ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"])
        if name == "tokenizer.json" and r.random() < 0.5:
            source = r.choice(self.tokenizers)
            shutil.copy(os.path.join(self.args.data, "tokenizer", source), os.path.join(folder, name))
            self.what += " with " + source
        if r.random() < 0.06:
            os.unlink(os.path.join(folder, name))
            self.what += ": no " + name
        elif name == "chat_template.jinja":
            def mutate(r, blob):
                text = blob.decode()
                k = r.randrange(5)
                part = r.choice(["{{", "}}", "{%", "%}", "{{ messages }}", "{% for m in messages %}", "{{ raise_exception('\x1b') }}", "{{ 'a' * 1000000000 }}", "{{ range(1000000000) }}", "{% set x = x %}", "{{ messages[0]['content'][::-1] }}", "{{ 1/0 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{# ", "{{ none.x.y }}", "(" * 5000, "{{ " + "[" * 2000])
                if k == 0: return part.encode(), "only %s" % part[:30]
                i = r.randrange(len(text) + 1)
                if k == 1: return (text[:i] + part + text[i:]).encode(), "%s put in" % part[:30]
                if k == 2: return (text[:i] + text[i + r.choice([1, 5, 20]):]).encode(), "text removed"
                return X.mutate_text(r, blob)
            self.change(r, name, mutate)
        else:
            self.json_file(r, name, self.word_donors)
        if r.random() < 0.15:
            side = r.choice(["special_tokens_map.json", "added_tokens.json", "vocab.json", "model.safetensors.index.json", "quantize_config.json", "tokenizer.model", "merges.txt"])
            open(os.path.join(folder, side), "wb").write(dump_json(X.any_value(r)) if r.random() < 0.5 else dump_json(Pairs([["weight_map", Pairs([["x", X.any_value(r)]])], [str(X.any_value(r))[:100], X.any_value(r)]])))
            self.what += " and " + side
        self.use(r, "m", True, None)

    def adapter(self, r):
        family = r.choice(["llama", "llama", "phi3", "qwen2"])
        kind = {"llama": r.choice(["llama", "llama-second", "llama-pickle"]), "phi3": "phi3-fused", "qwen2": "qwen2-dora"}[family]
        base = next(m for m in self.models.folders if m[0] == family)[1]
        os.symlink(base, os.path.join(self.work, "base"))
        if family == "llama" and r.random() < 0.2:
            blob, what = X.mutate_gguf(r, open(os.path.join(self.args.data, "lora", "llama-adapter.gguf"), "rb").read(), self.gguf_donors)
            open(os.path.join(self.work, "a.gguf"), "wb").write(blob)
            path, self.what = "a.gguf", "llama-adapter.gguf: " + what
        else:
            self.folder(r, [(kind, os.path.join(self.args.data, "lora", kind), False, None)])
            os.rename(os.path.join(self.work, "m"), os.path.join(self.work, "a")); os.symlink("a", os.path.join(self.work, "m"))
            for n in os.listdir(os.path.join(self.work, "a")):
                if n.startswith("merged"): os.unlink(os.path.join(self.work, "a", n))
            if r.random() < 0.4: self.json_file(r, "adapter_config.json")
            elif kind == "llama-pickle": self.change(r, "adapter_model.bin", X.mutate_text)
            else: self.change(r, "adapter_model.safetensors", X.mutate_safetensors, self.header_donors)
            os.unlink(os.path.join(self.work, "m")); path = "a"
        self.go(r, ["aprconv", "show", path])
        for stem in ("one", "two"):
            out = self.output(r, stem)
            flags = [f for f in ("--allow-loss",) if r.random() < 0.7]
            lora = ["--lora", path + r.choice(["", ":0.5", ":0"])]
            argv = r.choice([["aprconv", "convert"], ["aprquant", "-q", "--to", r.choice(TYPES)]]) + flags + lora + ["base", out]
            a = self.go(r, argv, new=[out])
            if a.code == 0: self.agree(r, "base", 0, {}, out, argv, same=False)
        if r.random() < 0.3: self.go(r, ["aprrun", "golden", "--threads", "1", "--lora", path, "base", os.path.join(self.args.data, "families", family, "golden.safetensors")])

    def imatrix(self, r):
        kind = r.choice(["llama.dat", "llama.gguf", "experts.gguf"])
        blob = open(os.path.join(self.args.data, "imatrix", kind), "rb").read()
        blob, what = X.mutate_gguf(r, blob, self.gguf_donors) if kind.endswith("gguf") else X.mutate_text(r, blob) if r.random() < 0.5 else X.mutate_data(r, blob, 4)
        name = "i" + kind[kind.index("."):]
        open(os.path.join(self.work, name), "wb").write(blob)
        self.what = "%s: %s" % (kind, what)
        base = next(m for m in self.models.folders if m[0] == ("llama" if "llama" in kind else "qwen3_moe"))[1]
        os.symlink(base, os.path.join(self.work, "base"))
        self.go(r, ["aprrun", "imatrix", "--show", name] + r.choice([[], ["--json"]]))
        for stem in ("one", "two"):
            out = self.output(r, stem)
            argv = ["aprquant", "-q", "--to", r.choice(TYPES), "--allow-loss", "--imatrix", name, "base", out]
            a = self.go(r, argv, new=[out])
            if a.code == 0: self.agree(r, "base", 0, {}, out, argv, same=False)

    def batch(self, r):
        os.symlink(self.models.folders[0][1], os.path.join(self.work, "base"))
        lines, sound = [], 0
        for i in range(r.choice([1, 5, 12])):
            line = load_json(r.choice(['{"id":%d,"prompt":"In the beginning","max_tokens":3}', '{"id":"a%d","messages":[{"role":"user","content":"hi"}],"max_tokens":2,"temperature":0.5,"top_p":0.9,"seed":3,"stop":["x"]}',
                '{"custom_id":"c%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"}]}],"max_tokens":2,"n":1,"stream":false}}',
                '{"custom_id":"d%d","method":"POST","url":"/v1/completions","body":{"prompt":"And","max_completion_tokens":2,"stop":null}}']) % i)
            for _ in range(r.choice([0, 1, 1, 2])): X.mutate_json(r, line)
            blob = dump_json(line).replace(b"\n", b" ")
            if r.random() < 0.1: blob = X.mutate_text(r, blob)[0].replace(b"\n", b" ")
            lines.append(blob)
        open(os.path.join(self.work, "in.jsonl"), "wb").write(b"\n".join(lines) + r.choice([b"", b"\n"]))
        self.what = repr(lines)[:300]
        argv = ["aprrun", "batch", "base", "in.jsonl", "-o", "out.jsonl", "-q", "--threads", "1", "--ctx", "64", "--sequences", "3"] + r.choice([[], [], ["--format", "openai"], ["--format", "aprkit"]])
        a = self.go(r, argv, new=["out.jsonl"], made=True)
        self.answers(argv, a, lines)
        if r.random() < 0.5:
            blob = open(os.path.join(self.work, "out.jsonl"), "rb").read()
            k = r.randrange(4)
            if k == 0: blob = blob[:r.randrange(len(blob) + 1)]
            elif k == 1: blob = b"".join(blob.splitlines(True)[:2])
            elif k == 2: blob = X.mutate_text(r, blob)[0]
            open(os.path.join(self.work, "out.jsonl"), "wb").write(blob)
            b = self.go(r, argv + ["--resume"], new=["out.jsonl"], made=True)
            if b.code == 0 and k in (0, 1): self.answers(argv + ["--resume"], b, lines)

    def answers(self, argv, a, lines):
        if a.code not in (0, 1):
            return
        answers = open(os.path.join(self.work, "out.jsonl"), "rb").read().splitlines()
        wanted = len([l for l in lines if l.strip(b" \t\r")])
        if len(answers) != wanted:
            self.say("batch: %d lines, %d answers" % (wanted, len(answers)), argv, a)
        for line in answers:
            try: json.loads(line)
            except ValueError as why: self.say("batch: an answer is not JSON: %s" % why, argv, a)
            if CONTROL.search(line): self.say("control: raw control characters in an answer", argv, a)

    def golden(self, r):
        if r.random() < 0.5:
            name, path, _, golden = r.choice([m for m in self.models.folders if m[3]])
            blob, what = X.mutate_safetensors(r, open(golden, "rb").read(), self.header_donors)
            open(os.path.join(self.work, "g.safetensors"), "wb").write(blob)
            self.what = "%s's golden.safetensors: %s" % (name, what)
            self.go(r, ["aprrun", "golden", "--threads", "1", path, "g.safetensors"] + r.choice([[], ["--json"], ["--checks", "logits,hidden"]]), prints_text=True)
            return
        root = copy.deepcopy(self.golden_json)
        what = "; ".join(X.mutate_json(r, root) for _ in range(r.choice([1, 2])))
        open(os.path.join(self.work, "g.json"), "wb").write(dump_json(root))
        self.what = "golden.json: " + what
        self.go(r, ["aprrun", "golden", "--threads", "1", os.path.join(self.args.data, "tiny-qwen2"), "g.json"] + r.choice([[], ["--json"], ["--checks", "top,greedy"]]), prints_text=True)

    def diff(self, r):
        name, path, _, _ = r.choice(self.models.ggufs)
        blob, what = X.mutate_gguf(r, open(path, "rb").read(), self.gguf_donors)
        open(os.path.join(self.work, "m.gguf"), "wb").write(blob)
        self.what = "%s.gguf: %s" % (name, what)
        same = blob == open(path, "rb").read()
        a = self.go(r, ["aprconv", "diff", "m.gguf", path] + r.choice([[], ["--json"]]))
        b = self.go(r, ["aprconv", "diff", path, "m.gguf"])
        if a.code != b.code: self.say("diff: exit %s one way, %s the other" % (a.code, b.code), ["aprconv", "diff"])
        self.go(r, ["aprrun", "kld", path, os.path.join(self.args.data, "heldout.txt"), "--ref", "m.gguf"])

    def start(self, work):
        self.models = M.Models(self.build, self.args.data, os.path.join(work, "base"))
        self.gguf_donors = [Gguf(open(p, "rb").read()) for _, p, _, _ in self.models.ggufs[::3]]
        self.apr_donors = [a.meta for a in (Apr(open(p, "rb").read()) for _, p, _, _ in self.models.aprs[1::3])]
        self.config_donors, self.header_donors = [], []
        for _, p, _, _ in self.models.folders:
            for n in os.listdir(p):
                if n == "config.json": self.config_donors.append(load_json(open(os.path.join(p, n), encoding="utf-8").read()))
                if n == "model.safetensors" and len(self.header_donors) < 12: self.header_donors.append(Safetensors(open(os.path.join(p, n), "rb").read()).header)
        folder = os.path.join(self.args.data, "tokenizer", "styles")
        self.tokenizers = ["bpe.json", "spm.json", "added-normalized.json"] + ["styles/" + n for n in sorted(os.listdir(folder)) if n.endswith(".json")]
        self.word_donors = [load_json(open(os.path.join(self.args.data, "tokenizer", n), encoding="utf-8").read()) for n in self.tokenizers]
        self.golden_json = load_json(open(os.path.join(self.args.data, "tiny-qwen2", "golden.json"), encoding="utf-8").read())

    def all(self):
        table = [("gguf", 26), ("weights", 20), ("apr", 16), ("config", 14), ("words", 9), ("adapter", 6), ("imatrix", 3), ("batch", 4), ("golden", 3), ("diff", 2)]
        kinds = [k for k, n in table for _ in range(n) if self.args.only in (None, k)]
        self.notes = collections.Counter()
        top = tempfile.mkdtemp(prefix="attack-")
        self.start(top)
        i, began = 0, time.monotonic()
        while self.runs < self.args.runs:
            self.seed = self.args.seed * 1000000 + i
            i += 1
            r = random.Random(self.seed)
            kind = r.choice(kinds)
            self.work, self.faulty, self.what = os.path.join(top, str(i)), False, kind
            os.mkdir(self.work)
            before = self.runs
            try:
                getattr(self, kind)(r)
            except (KeyError, IndexError, AttributeError, TypeError, ValueError, struct.error) as why:
                self.notes["not made (%s): %s: %s at %s" % (kind, type(why).__name__, str(why)[:60], traceback_line())] += 1
            self.mutants += 1
            self.kinds[kind] += 1
            self.kinds[kind, "runs"] += self.runs - before
            if self.faulty and self.args.keep:
                shutil.copytree(self.work, os.path.join(self.args.keep, str(self.seed)), symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(self.work)
            if i % 200 == 0:
                print("%d mutants, %d runs, %.0f s, %d kinds of finds" % (self.mutants, self.runs, time.monotonic() - began, len(self.finds)), file=sys.stderr, flush=True)
        shutil.rmtree(top)
        return self.report()

    def report(self):
        print("%d mutants, %d runs, seed %d" % (self.mutants, self.runs, self.args.seed))
        for k, n in self.kinds.items():
            if isinstance(k, str): print("  %-10s %6d mutants %7d runs" % (k, n, self.kinds[k, "runs"]))
        for (tool, code), n in sorted(self.codes.items(), key=str): print("  %-18s exit %s: %d" % (tool, code, n))
        for n, c in self.notes.most_common(40): print("  note %5d %s" % (c, n))
        for kind, finds in sorted(self.finds.items(), key=lambda f: -len(f[1])):
            print("FIND %d x %s" % (len(finds), kind))
            for seed, what, argv, fault, err in finds[:self.args.show]:
                print("   seed %d %s\n      $ %s\n      %s\n      %s" % (seed, what[:300], argv[:300], fault[:400], err.strip()[:400]))
        return len(self.finds)


def traceback_line():
    import traceback
    t = traceback.extract_tb(sys.exc_info()[2])[-1]
    return "%s:%d" % (os.path.basename(t.filename), t.lineno)


def packed(path, work):
    """Matrices in several tensors become others when they are written elsewhere."""
    path = os.path.join(work, path)
    return os.path.isdir(path) and any(b"quant" in open(os.path.join(path, n), "rb").read(1 << 16) for n in os.listdir(path) if n in ("config.json", "params.json", "hf_quant_config.json"))


def kind_of(out):
    return out.rsplit(".", 1)[1] if "." in out else "folder"
