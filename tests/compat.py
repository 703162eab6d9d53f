#!/usr/bin/env python3
"""usage: compat.py BUILD_DIR [THEIRS]
Does `aprconv compat` say what the programs do? Each model of tests/data as a folder, a GGUF and an APR file, and GGUFs that lack something:
the verdict next to what transformers does (where transformers 5 and torch are at hand), llama.cpp (THEIRS: tests/llamacpp/theirs.cpp, built as
tests/llamacpp.sh does) and the independent reader (tests/apr_reader.py). tests/data/families/compat.txt is what it printed last.
Exit 1: a verdict is wrong."""
import json, os, shutil, subprocess, sys, tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
tests = os.path.dirname(os.path.abspath(__file__))
data, build = os.path.join(tests, "data"), os.path.abspath(sys.argv[1])
theirs = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
try:
    import torch, transformers
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
except ImportError:
    transformers = None


def run(*command):
    return subprocess.run([os.path.join(build, command[0]), *command[1:]], capture_output=True, text=True)


def verdicts(path):
    said = json.loads(run("aprconv", "compat", "--json", path).stdout)
    return {p["name"]: (p["verdict"], p["reason"]) for p in said["programs"]}


def llama_cpp(path):
    return subprocess.run([theirs, "loads", path], capture_output=True).returncode == 0


def in_transformers(path):
    """Loads it with every weight found: a weight that it fills with random numbers is not loaded."""
    folder, extra = (path, {}) if os.path.isdir(path) else (os.path.dirname(path), {"gguf_file": os.path.basename(path)})
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **extra)
        name = (config.architectures or [None])[0]
        kind = getattr(transformers, name) if name and hasattr(transformers, name) else transformers.AutoModelForCausalLM
        _, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **extra)
        return not info["missing_keys"] and not info["mismatched_keys"]
    except ImportError:
        return "no library"
    except Exception:
        return False


def apr_reader(path):
    return subprocess.run([sys.executable, os.path.join(tests, "apr_reader.py"), "--run", path], capture_output=True).returncode == 0


counts = {}


def compare(what, path):
    said = verdicts(path)
    oracles = {}
    if path.endswith(".gguf") and theirs:
        oracles["llama.cpp"] = llama_cpp
    if not path.endswith(".apr") and transformers:
        oracles["transformers"] = in_transformers
    if path.endswith(".apr"):
        oracles["realizar"] = apr_reader
    for name, does in oracles.items():
        verdict, reason = said[name]
        fact = does(path)
        if fact == "no library":
            counts.setdefault(name, [0, 0, 0, 0])[3] += 1
            continue
        random = "random numbers" in (reason or "")
        right = fact == (verdict != "does_not" and not random)
        n = counts.setdefault(name, [0, 0, 0, 0])
        n[0] += 1
        n[1] += fact
        n[2] += not right
        if not right:
            print(f"WRONG {what}: {name} {'loads' if fact else 'does not load'} it, and compat says {verdict} ({reason})")


def changed(source, target, *edits):
    """The file with texts of the same length exchanged."""
    with open(source, "rb") as file:
        content = file.read()
    for old, new in edits:
        assert len(old) == len(new) and old in content, old
        content = content.replace(old, new)
    with open(target, "wb") as file:
        file.write(content)


with tempfile.TemporaryDirectory() as work:
    def of_folder(name, folder):
        compare(f"{name}/", folder)
        for to, options in (("gguf", []), ("apr", []), ("aprender.apr", ["--profile", "aprender"])):
            out = os.path.join(work, f"{name}.{to}")
            if run("aprconv", "convert", *options, folder, out).returncode == 0:
                compare(os.path.basename(out), out)
                os.remove(out)

    for name in ("tiny-qwen2", "tiny-llama"):
        of_folder(name, os.path.join(data, name))
    for name in sorted(os.listdir(os.path.join(data, "families"))):
        spec = os.path.join(data, "families", name)
        if os.path.isdir(spec):
            folder = os.path.join(work, name)
            run("make_family", spec, folder)
            of_folder(name, folder)
            shutil.rmtree(folder)
    gguf = os.path.join(data, "tiny-qwen2", "tiny-qwen2-Q4_K_M.gguf")
    broken = os.path.join(work, "broken.gguf")
    for what, edits in {"a GGUF of an unknown family": [(b"\x05\0\0\0\0\0\0\0qwen2", b"\x05\0\0\0\0\0\0\0qwenX")],
                        "a GGUF with an unknown tokenizer": [(b"\x04\0\0\0\0\0\0\0gpt2", b"\x04\0\0\0\0\0\0\0gptX")],
                        "a GGUF without a tensor": [(b"blk.1.ffn_down.weight", b"blk.1.ffn_dowX.weight")]}.items():
        changed(gguf, broken, *edits)
        compare(what, broken)

for name, (n, n_loaded, n_wrong, n_skipped) in counts.items():
    print(f"{name:14}{n:4} compared, {n_loaded} of them load, {n_wrong} wrong verdicts; {n_skipped} not compared, because a library is missing")
sys.exit(any(n[2] for n in counts.values()))
