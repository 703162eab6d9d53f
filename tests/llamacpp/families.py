#!/usr/bin/env python3
"""families.py DATA BUILD OURS THEIRS QUANTIZE [GGUFS] - every family's GGUF as we write it, held against llama.cpp.

DATA is tests/data, its families: each folder's checkpoint is made, written as GGUF, loaded by llama.cpp, and 40 tokens are compared
with the logits of the checkpoint in our own session, as one prompt and token by token, the larger difference as a part of the
largest logit. (Float32: llama.cpp rounds activations for weights in bf16, and a router's near-ties fall the other way then. That
the file with the types of the checkpoint loads and gives finite logits is asked as well.)

What llama.cpp computes otherwise than transformers stands in DEVIATIONS, each with a change of config.json after which the two must
agree: so the deviation is that and nothing else. It must have been said when the GGUF was written, and must still be there.

A Qwen3.5 with three value heads for each key head is quantized by llama-quantize (its K-quants keep ggml's order of heads) and run.
GGUFS may hold NAME.gguf of llama.cpp's own converter (--outtype f32) for the same weights; then ours must read them.
"""
import array
import json
import math
import os
import shutil
import subprocess
import sys

DATA, BUILD, OURS, THEIRS, QUANTIZE = sys.argv[1:6]
GGUFS = sys.argv[6] if len(sys.argv) > 6 and sys.argv[6] else None
FAMILIES = f"{DATA}/families"

AGREES = 2e-5  # another order of sums: 1.2e-5 at most, where value heads are in another order
GELU = 4e-3    # llama.cpp looks GELU up in a table of f16: 1.4e-3 to 2.8e-3

BOUNDS = {"gpt2": GELU, "gpt_neox": GELU, "phi": GELU, "starcoder2": GELU, "gemma": GELU, "gemma2": GELU, "gemma3": GELU, "gemma4": GELU, "gemma4_moe": GELU, "glm4_moe_lite": 8e-6, "kimi_linear": 3e-6}  # these two deviate by 1.5e-5 and 4e-6

# Twice what rounding the weights to these types costs here; tests/runtime/test_family_traps.c has a sharper bound.
QUANTS = {"F16": 2e-3, "Q8_0": 4e-2, "Q6_K": 0.15, "Q5_K_M": 0.3, "Q4_K_M": 0.6, "Q4_0": 0.6}

# family: why llama.cpp computes something else, what to set in config.json so that it computes the same
DEVIATIONS = {
    "deepseek_v2": ("groups by their two best", {"topk_method": "greedy", "n_group": 1, "topk_group": 1}),
    "exaone4": ("window with 64 layers only", {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
    "gemma2": ("supposes the scale", {"query_pre_attn_scalar": 12}),
    "gemma3": ("supposes scale, 5:1 windows", {"query_pre_attn_scalar": 12, "layer_types": ["sliding_attention"] * 4}),
    "glm4_moe_lite": ("one eps for all norms", {"rms_norm_eps": 1e-6}),
    "kimi_linear": ("one eps for all norms", {"rms_norm_eps": 1e-6}),
    "gpt_oss": ("rounds YaRN's range", {"rope_parameters.truncate": True}),
    "llama4": ("chunk and floor of 8192", {"attention_chunk_size": 8192, "floor_scale": 8192}),
    "starcoder2": ("has no window", {"sliding_window": None}),
    "mellum": ("one base for all layers", {"rope_parameters.sliding_attention.rope_theta": 500000.0}),
    "ministral": ("no window in arch llama", {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
    "mistral": ("no window in arch llama", {"sliding_window": None}),
}
# Index keys of 2^n numbers, at least 64, of which half is rotated: the Hadamard matrix is as wide, and the views of both parts alike. Of
# 7 positions some have the score 0, as others do, and it chooses others of these.
INDEX_AS_THEIRS = {"index_head_dim": 64, "qk_rope_head_dim": 32, "qk_head_dim": 48, "head_dim": 32}
NO_LOAD = {  # llama.cpp wants the two widths equal, or the two numbers of heads
    "cohere": ("norms of q and k with 64 layers", {"use_qk_norm": False}),
    "deepseek_v32": ("rotates half of 64, 128, ...", INDEX_AS_THEIRS),
    "glm_moe_dsa": ("rotates half of 64, 128, ...", {**INDEX_AS_THEIRS, "rms_norm_eps": 1e-6, "index_topk": 12}),
    "gemma3n": ("has the widths of E2B and E4B", None),
    "dots1": ("wants all heads to have keys", {"num_key_value_heads": 4}),
    "olmoe": ("wants all heads to have keys", {"num_key_value_heads": 4}),
    "qwen3_5": ("wants equal head widths", {"linear_value_head_dim": 16}),
    "qwen3_5_moe": ("wants equal head widths", {"linear_value_head_dim": 16}),
    "qwen3_next": ("wants equal head widths", {"linear_value_head_dim": 16}),
}
# llama.cpp's program approximates GELU by tanh whatever the class does: said, and within the bound of its table of GELU.
APPROXIMATED = {"gpt_neox"}
NO_GGUF = {"bailing_hybrid": "llama.cpp has another attention for it", "opt": "llama.cpp does not have it"}
# What llama.cpp's converter does not write: its GGUFs alone are not the model.
THEIRS_LACK = {"gemma2": "scale", "gemma3": "scale, windows", "llama4": "chunk", "mistral": "window", "mistral4": "temperature", "solar_open": "whole heads"}
THEIRS_REFUSED = {"glm4_moe_lite": "a softmax router with a bias for choice"}

failures = []


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def must(*command):
    code, said = run(*command)
    if code != 0:
        raise RuntimeError(f"{' '.join(command)}: {said or code}")
    return said


def logits(program, mode, model):
    must(program, mode, model, "family-ids.txt", "family-logits.f32")
    numbers = array.array("f")
    with open("family-logits.f32", "rb") as f:
        numbers.frombytes(f.read())
    os.remove("family-logits.f32")
    if not numbers or not all(map(math.isfinite, numbers)):
        raise RuntimeError(f"{model}: logits that are not finite")
    return numbers


def off(a, b):
    if len(a) != len(b):
        raise RuntimeError(f"{len(a)} logits for {len(b)}")
    return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, b))


def reshape(tensors, config, old):
    """Shapes where the widths of value heads changed from OLD."""
    values, was = config["linear_value_head_dim"], old["linear_value_head_dim"]
    heads, keys = config["linear_num_value_heads"], 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    more = {"in_proj_qkv.weight": [keys + heads * values, None], "conv1d.weight": [keys + heads * values, None, None],
            "in_proj_z.weight": [heads * values, None], "in_proj_qkvz.weight": [keys + 2 * heads * values, None],
            "linear_attn.norm.weight": [values], "linear_attn.out_proj.weight": [None, heads * values]}
    for name, tensor in tensors.items():
        for ending, shape in more.items():
            if was != values and name.endswith(ending):
                tensor[0] = [new or dim for new, dim in zip(shape, tensor[0])]


def reshape_keys(tensors, config, old):
    """Shapes where the number of key/value heads changed from OLD."""
    heads, had = config["num_key_value_heads"], old["num_key_value_heads"]
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    for name, tensor in tensors.items():
        if name.endswith(("k_proj.weight", "v_proj.weight", "k_norm.weight")) and tensor[0][0] == had * width:
            tensor[0][0] = heads * width


def reshape_index(tensors, config):
    """Shapes where the width of the index's keys, and of what latent attention rotates, changed."""
    heads, kept = config["num_attention_heads"], config["qk_nope_head_dim"]
    rows = {".indexer.wq_b.weight": config["index_n_heads"] * config["index_head_dim"], ".indexer.wk.weight": config["index_head_dim"],
            ".indexer.k_norm.weight": config["index_head_dim"], ".indexer.k_norm.bias": config["index_head_dim"],
            ".q_b_proj.weight": heads * (kept + config["qk_rope_head_dim"]),
            ".kv_a_proj_with_mqa.weight": config["kv_lora_rank"] + config["qk_rope_head_dim"]}
    for name, tensor in tensors.items():
        for ending, n in rows.items():
            if name.endswith(ending):
                tensor[0][0] = n


def edited(family, edit):
    """A folder like FAMILIES/family with another config.json."""
    folder = f"edited-{family}"
    os.makedirs(folder, exist_ok=True)
    config, tensors = (json.load(open(f"{FAMILIES}/{family}/{file}.json", encoding="utf-8")) for file in ("config", "tensors"))
    old = dict(config)
    for key, value in edit.items():
        *path, last = key.split(".")
        place = config
        for step in path:
            place = place[step]
        place[last] = value
    if "linear_value_head_dim" in config:
        reshape(tensors["tensors"], config, old)
    if config.get("num_key_value_heads") != old.get("num_key_value_heads"):
        reshape_keys(tensors["tensors"], config, old)
    if "index_head_dim" in config:
        reshape_index(tensors["tensors"], config)
    if not config.get("use_qk_norm", True):
        tensors["tensors"] = {name: t for name, t in tensors["tensors"].items() if "q_norm" not in name and "k_norm" not in name}
    for file, content in (("config", config), ("tensors", tensors)):
        with open(f"{folder}/{file}.json", "w", encoding="utf-8") as f:
            json.dump(content, f)
    return folder


def written(folder, name):
    """The checkpoint NAME, its GGUF in float32 and as stored, and whether a loss was said."""
    must(f"{BUILD}/make_family", folder, name)
    said = must(f"{BUILD}/aprconv", "convert", name, f"{name}.gguf")
    must(f"{BUILD}/aprquant", "-q", "--to", "f32", name, f"{name}-f32.gguf")
    return "WARNING" in said


def compare(name):
    """The larger difference of prompt and steps between our session of the checkpoint and theirs of our GGUF."""
    logits(THEIRS, "logits", f"{name}.gguf")
    return max(off(logits(THEIRS, mode, f"{name}-f32.gguf"), logits(OURS, mode, name)) for mode in ("logits", "steps"))


def as_committed(family, name):
    """What is printed of the committed configuration: the difference, or that it does not load."""
    said = written(f"{FAMILIES}/{family}", name)
    bound = BOUNDS.get(family, AGREES)
    if family in NO_LOAD:
        if run(THEIRS, "logits", f"{name}.gguf", "family-ids.txt", "family-logits.f32")[0] == 0:
            failures.append(f"{family}: llama.cpp loads it now: take it out of NO_LOAD")
        if not said:
            failures.append(f"{family}: that llama.cpp does not load it was not said")
        return "no load"
    difference = compare(name)
    if said != (family in DEVIATIONS or family in APPROXIMATED):
        failures.append(f"{family}: a loss was {'said that is none' if said else 'not said'}")
    if family in DEVIATIONS and not difference > bound:
        failures.append(f"{family}: off by {difference:.1e}: it does not deviate any more")
    if family not in DEVIATIONS and not difference <= bound:
        failures.append(f"{family}: off by {difference:.1e}, bound {bound:.0e}")
    return f"{difference:.1e}"


def when_changed(family, edit):
    name = f"{family}-changed"
    if written(edited(family, edit), name):
        failures.append(f"{family}: a loss is said although nothing is lost")
    difference, bound = compare(name), BOUNDS.get(family, AGREES)
    if not difference <= bound:
        failures.append(f"{family}: off by {difference:.1e} with {json.dumps(edit)}, bound {bound:.0e}")
    return f"{difference:.1e}"


def of_theirs(family, name):
    """Our logits of llama.cpp's own GGUF."""
    path = f"{GGUFS}/{family}.gguf"
    if GGUFS is None or not os.path.exists(path):
        return "-"
    if family in THEIRS_REFUSED:
        if run(OURS, "logits", path, "family-ids.txt", "family-logits.f32")[0] == 0:
            failures.append(f"{family}: {path} is run, with {THEIRS_REFUSED[family]}")
        return "refused"
    difference = max(off(logits(OURS, mode, path), logits(OURS, mode, name)) for mode in ("logits", "steps"))
    if (difference > AGREES) != (family in THEIRS_LACK):
        failures.append(f"{family}: llama.cpp's own GGUF is off by {difference:.1e} when we run it")
    return f"{difference:.1e}" + (f" (lacks {THEIRS_LACK[family]})" if family in THEIRS_LACK else "")


def row(family):
    if family in NO_GGUF:
        said = run(f"{BUILD}/aprconv", "families", "--json")[1]
        if any(f["family"] == family and f["translates"] for f in json.loads(said).get("families", [])):
            failures.append(f"{family}: it has a GGUF now: take it out of NO_GGUF")
        print(f"{family:18} no GGUF             {NO_GGUF[family]}", flush=True)
        return
    why, edit = {**DEVIATIONS, **NO_LOAD}.get(family, ("GELU from an f16 table" if family in BOUNDS else "", None))
    try:
        first = as_committed(family, family)
        changed = when_changed(family, edit) if edit else ""
        theirs = of_theirs(family, family)
    except RuntimeError as error:
        failures.append(f"{family}: {error}")
        first, changed, theirs = "failed", "", ""
    print(f"{family:18} {first:10} {BOUNDS.get(family, AGREES):.0e}  {why:28} {changed:10} {theirs}".rstrip(), flush=True)
    for name in (family, f"{family}-changed"):
        shutil.rmtree(name, ignore_errors=True)
        for path in (f"{name}.gguf", f"{name}-f32.gguf"):
            if os.path.exists(path):
                os.remove(path)


def quantized():
    """Files of llama-quantize in our session, next to llama.cpp's own session of them, where its kernels run on this machine."""
    must(f"{BUILD}/make_family", f"{DATA}/spellings/qwen3_5_wide", "wide")
    must(f"{BUILD}/aprquant", "-q", "--to", "f32", "wide", "wide.gguf")
    truth = logits(OURS, "logits", "wide")
    print(f"\n{'qwen3_5, 2 and 6 heads':24} {'off by':10} {'bound':6} llama.cpp's own")
    for quant, bound in QUANTS.items():
        must(QUANTIZE, "wide.gguf", "quant.gguf", quant)
        difference = max(off(logits(OURS, mode, "quant.gguf"), truth) for mode in ("logits", "steps"))
        if not difference <= bound:
            failures.append(f"qwen3_5 in {quant}: off by {difference:.1e}, bound {bound:.0e}")
        code = run(THEIRS, "logits", "quant.gguf", "family-ids.txt", "family-logits.f32")[0]
        theirs = f"died of signal {-code}" if code < 0 else f"{off(logits(THEIRS, 'logits', 'quant.gguf'), truth):.1e}"
        print(f"{quant:24} {difference:.1e}    {bound:.0e}  {theirs}", flush=True)
        os.remove("quant.gguf")


with open("family-ids.txt", "w", encoding="ascii") as ids:
    ids.write(" ".join(str((i * 37 + i * i) % 146 + 1) for i in range(1, 41)) + "\n")
print(f"{'family':18} {'off by':10} {'bound':6} {'what llama.cpp does':28} {'without it':10} our logits of its own GGUF")
for each in sorted(f for f in os.listdir(FAMILIES) if os.path.isdir(f"{FAMILIES}/{f}")):
    row(each)
quantized()
for failure in failures:
    print(f"FAILED {failure}")
sys.exit(len(failures) > 0)
