#!/usr/bin/env python3
"""usage: gguf_to_transformers.py BUILD_DIR [FAMILY...]
A checkpoint of every family to GGUF and back (to APR where llama.cpp has no such architecture): does transformers load what comes back, with nothing missing or left over, and with the
logits that it had of the original (tests/data/families/*/golden.safetensors)? For machines that have transformers 5, torch and
safetensors; tests/data/families/transformers.txt is what it printed last. Exit 1: a family does not load, or is off by 5e-5 or more."""
import os, subprocess, sys, tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
from safetensors.torch import load_file

UNSUPPORTED = 5  # the exit code of a refusal
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
build, families = os.path.abspath(sys.argv[1]), os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "families")


def run(*command):
    subprocess.run([os.path.join(build, command[0]), *command[1:]], check=True, capture_output=True)


def judge(family, folder):
    source, middle, back = (os.path.join(folder, name) for name in ("source", "model.gguf", "back/"))
    run("make_family", os.path.join(families, family), source)
    try:
        run("aprconv", "convert", source, middle)
    except subprocess.CalledProcessError as e:
        if e.returncode != UNSUPPORTED: raise
        middle = os.path.join(folder, "model.apr")
        run("aprconv", "convert", source, middle)
    run("aprconv", "convert", middle, back)
    config = transformers.AutoConfig.from_pretrained(back)
    model, info = getattr(transformers, config.architectures[0], transformers.AutoModelForCausalLM).from_pretrained(
        back, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    golden = load_file(os.path.join(families, family, "golden.safetensors"))
    with torch.no_grad():
        logits = model.eval()(golden["ids"][None].long()).logits[0]
    off = ((logits - golden["logits"]).abs().max() / golden["logits"].abs().max()).item()
    n_wrong = len(info["missing_keys"]) + len(info["unexpected_keys"])
    by = ", by APR" if middle.endswith(".apr") else ""
    print(f"{family:18} {config.architectures[0]:28} {off:.1e}  {'ok' if off < 5e-5 and n_wrong == 0 else 'WRONG'}{by}")
    return off < 5e-5 and n_wrong == 0


print(f"transformers {transformers.__version__}, largest difference of logits as a part of the largest")
names = sys.argv[2:] or sorted(f for f in os.listdir(families) if os.path.isdir(os.path.join(families, f)))
bad = 0
for name in names:
    with tempfile.TemporaryDirectory() as folder:
        try:
            bad += not judge(name, folder)
        except Exception as e:
            print(f"{name:18} does not load: {' '.join(str(e).split())[-150:]}")
            bad += 1
sys.exit(bad > 0)
