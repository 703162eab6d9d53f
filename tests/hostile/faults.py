"""Failing system calls and allocations, one at a time, in every tool: no output but a whole one, nothing left, no wrong word about why."""
import collections, hashlib, os, random, re, shutil, subprocess, tempfile

from . import models as M
from .oracle import *

E = dict(EIO=5, ENOMEM=12, EACCES=13, EMFILE=24, ENOSPC=28, EROFS=30, EINTR=4, EDQUOT=122, ENOENT=2, EPERM=1, EXDEV=18, SHORT=0)
KINDS = {"open": ["EMFILE", "EACCES", "EIO", "ENOSPC", "ENOMEM"], "write": ["ENOSPC", "EIO", "SHORT", "EDQUOT", "EINTR"], "sync": ["EIO", "ENOSPC"], "rename": ["EIO", "EACCES", "ENOSPC"], "link": ["EIO", "ENOSPC", "EPERM"],
         "unlink": ["EIO", "EACCES"], "mkdir": ["EACCES", "ENOSPC", "EIO"], "close": ["EIO", "ENOSPC"], "map": ["ENOMEM", "EIO", "EACCES"], "truncate": ["EIO", "ENOSPC"], "allocate": ["ENOSPC", "EIO"], "read": ["EIO", "SHORT", "EINTR"], "stat": ["EIO", "EACCES"]}


def tree(path):
    if os.path.isdir(path):
        return tuple((n, tree(os.path.join(path, n))) for n in sorted(os.listdir(path)))
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


class Faults:
    def __init__(self, args):
        self.args, self.build = args, os.path.abspath(args.build)
        self.top = tempfile.mkdtemp(prefix="faults-")
        self.library = os.path.join(self.top, "failing.so")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.library, os.path.join(os.path.dirname(os.path.abspath(__file__)), "failing_calls.c"), "-ldl"], check=True)
        self.env = dict(os.environ, OMP_NUM_THREADS="1", LC_ALL="C.UTF-8")
        self.finds, self.kinds, self.codes = collections.defaultdict(list), collections.Counter(), collections.Counter()
        base = os.path.join(self.top, "base")
        os.mkdir(base)
        M.micro(os.path.join(base, "micro"), args.data)
        for family in ("llama", "qwen3_moe"):
            M.tool(self.build, ["make_family", os.path.join(args.data, "families", family), family], base)
        for name in ("micro", "llama", "qwen3_moe"):
            for ending in (".gguf", ".apr"):
                M.tool(self.build, ["aprconv", "convert", "-q", name, name + ending], base)
        M.shards(os.path.join(base, "llama"), os.path.join(base, "shards"))
        shutil.copytree(os.path.join(args.data, "lora", "llama"), os.path.join(base, "lora"))
        open(os.path.join(base, "in.jsonl"), "w").write('{"id":1,"prompt":"In","max_tokens":2}\n{"id":2,"messages":[{"role":"user","content":"hi"}],"max_tokens":2}\n')
        open(os.path.join(base, "text.txt"), "w").write("In the beginning God created the heaven and the earth. " * 20)
        self.base = base
        d = os.path.join(args.data)
        # name: (command line, what it makes, what exists before)
        self.scenes = {
            "st2gguf": (["aprconv", "convert", "-q", "micro", "o.gguf"], ["o.gguf"], None), "st2apr": (["aprconv", "convert", "-q", "micro", "o.apr"], ["o.apr"], None),
            "gguf2st": (["aprconv", "convert", "-q", "micro.gguf", "o"], ["o"], None), "gguf2apr": (["aprconv", "convert", "-q", "qwen3_moe.gguf", "o.apr"], ["o.apr"], None),
            "apr2st": (["aprconv", "convert", "-q", "micro.apr", "o"], ["o"], None), "apr2gguf": (["aprconv", "convert", "-q", "--json", "llama.apr", "o.gguf"], ["o.gguf"], None),
            "shards2gguf": (["aprconv", "convert", "shards", "o.gguf"], ["o.gguf"], None),
            "over gguf": (["aprconv", "convert", "-f", "micro", "o.gguf"], ["o.gguf"], "llama.gguf"), "over folder": (["aprconv", "convert", "-f", "micro.gguf", "o"], ["o"], "llama"),
            "over apr": (["aprquant", "-f", "--to", "q8_0", "micro", "o.apr"], ["o.apr"], "llama.apr"),
            "quant": (["aprquant", "-q", "--to", "q4_k_m", "qwen3_moe", "o.gguf"], ["o.gguf"], None), "quant folder": (["aprquant", "-q", "--to", "fp8", "llama", "o"], ["o"], None),
            "report": (["aprquant", "-q", "--to", "q8_0", "--report", "r.json", "llama", "o.apr"], ["o.apr", "r.json"], None), "html": (["aprquant", "-q", "--to", "q4_0", "--report", "r.html", "llama", "o.apr"], ["o.apr", "r.html"], None),
            "resume": (["aprquant", "-q", "--to", "q8_0", "--resume", "llama", "o.gguf"], ["o.gguf"], None), "resume folder": (["aprquant", "-q", "--to", "bf16", "--resume", "llama", "o"], ["o"], None),
            "ldlq": (["aprquant", "-q", "--to", "q4_0", "-m", "ldlq", "--calibration", "text.txt", "--tokens", "64", "--window", "32", "micro", "o.gguf"], ["o.gguf"], None),
            "imatrix": (["aprrun", "imatrix", "--threads", "1", "micro", "text.txt", "-o", "i.gguf", "--ctx", "64"], ["i.gguf"], None), "dat": (["aprrun", "imatrix", "--threads", "1", "micro", "text.txt", "-o", "i.dat", "--ctx", "64", "--resume"], ["i.dat"], None),
            "lora": (["aprconv", "convert", "-q", "--lora", "lora", "llama", "o.gguf"], ["o.gguf"], None),
            "show": (["aprconv", "show", "micro.gguf"], [], None), "show json": (["aprconv", "show", "--json", "micro"], [], None), "check": (["aprconv", "check", "micro.apr"], [], None), "diff": (["aprconv", "diff", "micro.apr", "micro"], [], None),
            "plan": (["aprplan", "--vram", "8G", "micro"], [], None), "run": (["aprrun", "micro", "-p", "hi", "-n", "2", "--threads", "1"], [], None), "golden": (["aprrun", "golden", "--threads", "1", "llama.apr", os.path.join(d, "families", "llama", "golden.safetensors")], [], None),
            "batch": (["aprrun", "batch", "micro", "in.jsonl", "-o", "out.jsonl", "-q", "--threads", "1", "--ctx", "64"], ["out.jsonl"], None), "ppl": (["aprrun", "ppl", "--threads", "1", "micro.gguf", "text.txt"], [], None),
            "verify": (["aprrun", "verify", "--threads", "1", "micro.gguf", "--ref", "micro"], [], None), "kld": (["aprrun", "kld", "--threads", "1", "micro.gguf", "text.txt", "--ref", "micro"], [], None),
        }

    def prepare(self, before, made):
        work = tempfile.mkdtemp(dir=self.top)
        for n in os.listdir(self.base):
            os.symlink(os.path.join(self.base, n), os.path.join(work, n))
        if before is not None:
            source = os.path.join(self.base, before)
            if os.path.isdir(source):
                M.tool(self.build, ["aprconv", "convert", "-q", source, made[0]], work)
            else:
                shutil.copy(source, os.path.join(work, made[0]))
        return work

    def go(self, name, more):
        argv, made, before = self.scenes[name]
        work = self.prepare(before, made)
        old = {n: tree(os.path.join(work, n)) for n in made if os.path.lexists(os.path.join(work, n))}
        names = set(os.listdir(work))
        env = dict(self.env, LD_PRELOAD=self.library, **more)
        a = run([os.path.join(self.build, argv[0])] + argv[1:], work, env, self.args.limit, injected=True, prints_text=argv[0] == "aprrun")
        left = set(os.listdir(work)) - names
        now = {n: tree(os.path.join(work, n)) for n in made if os.path.lexists(os.path.join(work, n))}
        shutil.rmtree(work)
        return a, left, old, now

    def count(self, name, kind):
        path = os.path.join(self.top, "count")
        a, left, _, now = self.go(name, dict(APRKIT_FAIL_CALL=kind, APRKIT_FAIL_COUNT=path))
        if a.code != 0:
            raise SystemExit("%s: exit %s without a fault: %s" % (name, a.code, a.err.decode()))
        if name not in self.sound:
            self.sound[name] = (now, a.out)
        return int(open(path).read())

    def judge(self, name, kind, at, code_name, on):
        on = on and code_name != "EINTR"
        more = dict(APRKIT_FAIL_CALL=kind, APRKIT_FAIL_AT=str(at), APRKIT_FAIL_ERRNO=str(E[code_name]))
        if on:
            more["APRKIT_FAIL_ON"] = "1"
        a, left, old, now = self.go(name, more)
        self.kinds[kind] += 1
        self.codes[kind, a.code] += 1
        made = set(self.scenes[name][1])
        faults = list(a.faults)
        resumes = {n + ".resume" for n in made} if "resume" in name or name == "dat" else set()
        if a.code == 0:
            if name != "batch" and not name in ("report", "html") and now != self.sound[name][0]:
                faults.append("lie: exit 0 with another output than without the fault")
            if name == "batch" and set(now) != made:
                faults.append("lie: exit 0 without an output")
            if left - made - (resumes if b"could not be removed" in a.out else set()):
                faults.append("left: %s at exit 0" % sorted(left - made))
        else:
            fine = {3, 6, 7} if kind != "malloc" else {6}
            if b"is complete" in a.err + a.out:
                left -= made | {n for n in left if ".before." in n}
            if kind == "malloc" and b"libgomp" in a.err:
                fine = {1, 6}  # before the program begins
            if a.code not in fine and not (name in ("batch",) and a.code == 1):
                faults.append("code: exit %s for %s of %s" % (a.code, code_name, kind))
            strays = left - resumes - ({"out.jsonl"} if name == "batch" else set())
            if kind in ("unlink", "rename"):
                strays = {s for s in strays if ".aprkit-" not in s}
            if name in ("report", "html"):
                strays -= made
            if strays:
                faults.append("left: %s at exit %s" % (sorted(strays), a.code))
            if self.scenes[name][2] is not None and now != old and now != self.sound[name][0]:
                faults.append("lost: what was there before is neither the old nor the new")
            if not a.err and b'"error"' not in a.out and b'"status"' not in a.out:
                faults.append("silent: exit %s without a word" % a.code)
        for f in faults:
            self.finds[re.sub(r"[0-9a-f]{16}", "X", f)[:90]].append("%s: %s %d %s%s: %s | %s" % (name, kind, at, code_name, " on" if on else "", f, (a.err.decode("utf-8", "replace") or a.out.decode("utf-8", "replace")[:200]).strip()[:300]))

    def all(self):
        r = random.Random(self.args.seed)
        self.sound, places, allocations = {}, [], []
        for name in self.scenes:
            for kind in list(KINDS) + ["malloc"]:
                n = self.count(name, kind)
                (allocations if kind == "malloc" else places).extend((name, kind, i + 1) for i in (range(n) if n < 4000 else sorted(r.sample(range(n), 4000))))
        print("%d system calls, %d allocations (of each scene at most 4,000) can fail" % (len(places), len(allocations)), flush=True)
        # each kind and scene has its share
        for which, n in ((places, self.args.faults), (allocations, self.args.allocations)):
            groups = collections.defaultdict(list)
            for p in which:
                groups[p[:2]].append(p)
            for g in groups.values():
                r.shuffle(g)
            done = 0
            while done < n and groups:
                for key in list(groups):
                    if not groups[key]:
                        del groups[key]
                        continue
                    name, kind, at = groups[key].pop()
                    self.judge(name, kind, at, r.choice(KINDS[kind]) if kind != "malloc" else "ENOMEM", r.random() < 0.25 and kind != "read")
                    done += 1
                    if done >= n:
                        break
        shutil.rmtree(self.top)
        print("runs by kind: %s" % dict(self.kinds))
        for (kind, code), n in sorted(self.codes.items(), key=str): print("  %-9s exit %s: %d" % (kind, code, n))
        for f, where in sorted(self.finds.items(), key=lambda x: -len(x[1])):
            print("FIND %d x %s" % (len(where), f))
            for w in where[:self.args.show]: print("    " + w)
        return len(self.finds)
