#!/usr/bin/env python3
"""Compares the folders that aprquant writes for servers with the libraries that own their layouts, and records what transformers computes
from them.

usage: make.py BUILD SOURCES [NAME ...]        BUILD: the folder of aprquant and make_family; SOURCES: checkouts of GPTQModel and AutoAWQ in it

For each model of this folder and each layout: every matrix decoded by the layout's own library must be the values that aprkit reads, bit for
bit; config.json's quantization_config must be what the library writes for the same scheme, field by field; model.safetensors.index.json must
name every tensor; matrices that servers fuse must have one global scale. Then MODEL-TYPE-LAYOUT.safetensors gets the logits for
`aprrun golden`. No test runs this; README.md has the versions."""
import json, os, subprocess, sys, tempfile, types
import numpy as np, torch, transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

BUILD, SOURCES = sys.argv[1], sys.argv[2]
HERE = os.path.dirname(os.path.abspath(__file__))
F32, BF16 = torch.float32, torch.bfloat16
LAYOUTS = [("nvfp4", "compressed-tensors", 0), ("nvfp4", "modelopt", 0), ("mxfp4", "compressed-tensors", 0), ("fp8", "fp8", 0),
           ("int4", "compressed-tensors", 32), ("int4", "gptq", 64), ("int4", "awq", 32)]

def run(*args): subprocess.run([os.path.join(BUILD, args[0]), *map(str, args[1:])], check=True, stdout=subprocess.DEVNULL)

# --- decoding by the owning library: parts -> values [m, n] in float32 ---

def ct(fmt, preset):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import preset_name_to_scheme
    scheme = preset_name_to_scheme(preset, ["Linear"]); scheme.format = fmt
    return BaseCompressor.get_value_from_registry(fmt), scheme

def ct_nvfp4(p, group):
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    q = p["weight_packed"]
    x = unpack_fp4_from_uint8(q, q.shape[0], q.shape[1] * 2)
    return dequantize(x_q=x, scale=p["weight_scale"].to(BF16), args=ct("nvfp4-pack-quantized", "NVFP4A16")[1].weights, global_scale=p["weight_global_scale"], dtype=F32)

def ct_mxfp4(p, group):
    compressor, scheme = ct("mxfp4-pack-quantized", "MXFP4A16")
    return compressor.decompress(dict(p), scheme)["weight"].float()

def ct_int4(p, group):
    compressor, scheme = ct("pack-quantized", "W4A16"); scheme.weights.group_size = group
    return compressor.decompress(dict(p), scheme)["weight"].float()

def modelopt_nvfp4(p, group):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    m, n = p["weight"].shape
    q = NVFP4QTensor(torch.Size([m, 2 * n]), F32, p["weight"])
    return q.dequantize(F32, scale=p["weight_scale"], double_scale=p["weight_scale_2"], block_sizes={-1: 16})

def fp8_block(p, group):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    q, s = p["weight"], p["weight_scale_inv"]
    m, n = q.shape
    padded = torch.zeros(s.shape[0] * 128, s.shape[1] * 128, dtype=q.dtype); padded[:m, :n] = q
    return Fp8Dequantize(None)._dequantize_one(padded, s, output_dtype=F32)[:m, :n]

def bare(name, path):
    """a package whose __init__ is not run"""
    module = types.ModuleType(name); module.__path__ = [path]; sys.modules[name] = module; return module

def gptq(p, group):
    if "gptqmodel" not in sys.modules:
        package = bare("gptqmodel", SOURCES + "/GPTQModel/gptqmodel"); package.DEBUG_ON, package.DEVICE_THREAD_POOL = False, None
        try: import gptqmodel.quantization  # its modules import one another in a circle: the second try finds what the first has left
        except ImportError: pass
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module
    K, N = p["qweight"].shape[0] * 8, p["qweight"].shape[1]
    linear = TorchLinear(4, group, True, False, K, N, bias=False)
    for k, v in p.items(): setattr(linear, k, v.clone())
    linear.qzero_format(format=1); convert_gptq_v1_to_v2_format_module(linear, 4, torch.int32)
    return linear.eval().dequantize_weight().t().float()

def awq(p, group):
    for name in ("awq", "awq.modules", "awq.modules.linear", "awq.utils"):
        if name not in sys.modules: bare(name, SOURCES + "/AutoAWQ/" + name.replace(".", "/"))
    from awq.utils.packing_utils import dequantize_gemm
    return dequantize_gemm(p["qweight"], p["qzeros"], p["scales"], 4, group).t().contiguous().float()

DECODE = {("nvfp4", "compressed-tensors"): ct_nvfp4, ("nvfp4", "modelopt"): modelopt_nvfp4, ("mxfp4", "compressed-tensors"): ct_mxfp4,
          ("fp8", "fp8"): fp8_block, ("int4", "compressed-tensors"): ct_int4, ("int4", "gptq"): gptq, ("int4", "awq"): awq}
CODES = {"compressed-tensors": ".weight_packed", "modelopt": ".weight", "fp8": ".weight", "gptq": ".qweight", "awq": ".qweight"}

# --- what the library writes into config.json ---

def wanted_config(kind, layout, group, written, folder):
    if layout == "compressed-tensors":
        from compressed_tensors.quantization import QuantizationConfig
        fmt, preset = {"nvfp4": ("nvfp4-pack-quantized", "NVFP4A16"), "mxfp4": ("mxfp4-pack-quantized", "MXFP4A16"), "int4": ("pack-quantized", "W4A16")}[kind]
        scheme = ct(fmt, preset)[1]
        if group: scheme.weights.group_size = group
        q = QuantizationConfig(config_groups={"group_0": scheme}, format=fmt, quantization_status="compressed", ignore=written["ignore"])
        assert QuantizationConfig.model_validate(written).model_dump_json() == q.model_dump_json()
        return json.loads(q.model_dump_json())
    if layout == "modelopt":
        from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
        return convert_hf_quant_config_format(json.load(open(folder + "/hf_quant_config.json")))
    if layout == "fp8":
        q = transformers.FineGrainedFP8Config(modules_to_not_convert=written["modules_to_not_convert"]).to_dict()
        return {k: list(v) if isinstance(v, tuple) else v for k, v in q.items() if k in written} | {"fmt": "e4m3"}
    if layout == "gptq":
        q = transformers.GPTQConfig(bits=4, group_size=group, desc_act=False, sym=True, checkpoint_format="gptq").to_dict()
        keys = ("bits", "group_size", "desc_act", "sym", "quant_method", "checkpoint_format")
        return {k: getattr(q[k], "value", q[k]) for k in keys} | {k: written[k] for k in ("lm_head", "pack_dtype", "dynamic")}
    q = transformers.AwqConfig(bits=4, group_size=group, zero_point=True, version="gemm", modules_to_not_convert=written["modules_to_not_convert"]).to_dict()
    return {k: getattr(q[k], "value", q[k]) for k in written}

def skipped_of(q): return q.get("ignore") or q.get("modules_to_not_convert") or [k[3:-1].replace("[.]", ".") for k in q.get("dynamic", {})]

# --- one folder ---

def parts_of(tensors, codes):
    matrices = {}
    stems = [n[:-len(codes)] for n in tensors if n.endswith(codes) and len(tensors[n].shape) == 2]
    for stem in stems:
        parts = {n[len(stem) + 1:]: t for n, t in tensors.items() if n.startswith(stem + ".") and n[len(stem) + 1:].count(".") == 0}
        if len(parts) > 1 and not ("bias" in parts and len(parts) == 2): matrices[stem] = parts
    return matrices

def check_index(folder, tensors):
    path = folder + "/model.safetensors.index.json"
    if os.path.exists(path): assert set(json.load(open(path))["weight_map"]) == set(tensors)
    for f in os.listdir(folder):
        if f.endswith(".safetensors"): assert safe_open(folder + "/" + f, "pt").metadata()["format"] == "pt", f

def outputs(config, decoded, path):
    """What transformers computes in float32 from the decoded values."""
    with tempfile.TemporaryDirectory() as d:
        c = {k: v for k, v in config.items() if k != "quantization_config"}
        json.dump(c, open(d + "/config.json", "w")); save_file(decoded, d + "/model.safetensors", {"format": "pt"})
        model, info = transformers.AutoModelForCausalLM.from_pretrained(d, dtype=F32, attn_implementation="eager", output_loading_info=True)
    assert not info["unexpected_keys"] and set(info["missing_keys"]) <= {"lm_head.weight"}, info
    ids = torch.randint(3, config["vocab_size"], (2, 16), generator=torch.Generator().manual_seed(37))
    with torch.no_grad(): one, two = [model.eval()(x[None], use_cache=False).logits[0].float() for x in ids]
    save_file({"ids": ids[0].int(), "logits": one.contiguous(), "ids2": ids[1].int(), "last2": two[-1].contiguous()}, path)

def check(model, kind, layout, group):
    name = f"{model}-{kind}-{layout}"
    with tempfile.TemporaryDirectory() as d:
        src, out, plain = d + "/src", d + "/out", d + "/plain"
        run("make_family", f"{HERE}/{model}", src)
        run("aprquant", "--to", kind, "--layout", layout, *(["--group", group] if group else []), "--max-shard", "100KB", src, out)
        run("aprquant", "--to", "f32", "--allow-requantize", out, plain)
        tensors, ours = {}, {}
        for folder, into in ((out, tensors), (plain, ours)):
            for f in os.listdir(folder):
                if f.endswith(".safetensors"): into.update(load_file(folder + "/" + f))
        check_index(out, tensors)
        config = json.load(open(out + "/config.json")); written = config["quantization_config"]
        wanted = wanted_config(kind, layout, group, written, out)
        assert written == wanted, f"{name}\nwritten {written}\nwanted {wanted}"
        matrices = parts_of(tensors, CODES[layout])
        for stem, parts in matrices.items():
            value = DECODE[kind, layout](parts, group or 16)
            assert torch.equal(value + 0.0, ours[stem + ".weight"] + 0.0), (name, stem, (value - ours[stem + ".weight"]).abs().max())
        linear = {n[:-7] for n, t in load_file(src + "/model.safetensors").items() if t.dim() == 2 and "embed" not in n}
        assert linear - set(matrices) <= set(skipped_of(written)) and not set(matrices) & set(skipped_of(written))
        for stem, parts in matrices.items():
            for a, b in (("q_proj", "k_proj"), ("q_proj", "v_proj"), ("gate_proj", "up_proj")):
                other = matrices.get(stem[:-len(a)] + b) if stem.endswith(a) else None
                for k in ("weight_global_scale", "weight_scale_2"):
                    if other and k in parts: assert torch.equal(parts[k], other[k]), stem
        outputs(config, {n: t.float() for n, t in ours.items()}, f"{HERE}/{name}.safetensors")
        print(f"{name:40} {len(matrices)} matrices equal, {len(linear - set(matrices))} left")

for model in ("dense", "moe"):
    for kind, layout, group in LAYOUTS:
        if not sys.argv[3:] or f"{model}-{kind}-{layout}" in sys.argv[3:]: check(model, kind, layout, group)
