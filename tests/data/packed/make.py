#!/usr/bin/env python3
"""Makes the tiny checkpoints of this folder in every quantized layout, and what the layouts' own libraries decode them to.

usage: make.py OUT SOURCES [NAME ...]

SOURCES holds checkouts of AutoGPTQ, GPTQModel and AutoAWQ (folders of those names): their modules are imported without their packages'
__init__, which want a GPU. Everything else comes from PyPI; README.md has the versions. No test runs this."""
import copy, json, os, sys, tempfile, types, zlib
import numpy as np, torch, transformers
from safetensors.torch import save_file

OUT, SOURCES = sys.argv[1], sys.argv[2]
F32, BF16, F16, E4M3 = torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn
NAME_OF = {F32: "F32", BF16: "BF16", F16: "F16"}

# --- weights: the formula of tests/support/family_model.h, so that a name and a seed say everything ---

def values(name, shape, mean, dev, seed):
    n = int(np.prod(shape)); z = 0xcbf29ce484222325
    for c in name.encode(): z = ((z ^ c) * 0x100000001b3) & (2 ** 64 - 1)
    with np.errstate(over="ignore"):
        z = np.uint64((z + seed) & (2 ** 64 - 1)) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9); z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb); z ^= z >> np.uint64(31)
    total = sum(((z >> np.uint64(8 * i)) & np.uint64(255)).astype(np.float64) for i in range(4)) - 510.0
    return torch.from_numpy((mean + dev * (total / 147.8)).astype(np.float32)).reshape(shape).to(BF16)

def weight(name, shape):
    if len(shape) == 1: return values(name, shape, 0 if name.endswith("bias") else 1, 0.2, 9)
    w = values(name, shape, 0, 0.7 if "embed" in name else 1.3 / shape[-1] ** 0.5, 9)
    # matrices side by side in one block of a fused product differ in size: so do their global scales
    return w * {"k_proj": 0.5, "v_proj": 2.0, "up_proj": 0.75}.get(name.split(".")[-2], 1.0) if ".layers." in name else w

# --- the layouts: pack(name, w) gives the stored parts, the values in the library's own type, and without its last rounding ---

def by_groups(w, group): return w.float().reshape(w.shape[0], -1, group if group > 0 else w.shape[1])

def int_scales(w, group, bits, symmetric):
    """[N, G] scales and zero points of codes 0 .. 2^bits - 1; zero points from 1 on, so that GPTQ's libraries agree"""
    g = by_groups(w, group); top = 2 ** bits - 1
    if symmetric: return g.abs().amax(-1) * 2 / top, torch.full(g.shape[:2], (top + 1) // 2)
    low, high = g.amin(-1).clamp(max=0), g.amax(-1).clamp(min=0)
    scale = (high - low) / top
    return scale, (-low / scale).round().clamp(1, top).int()

class CompressedTensors:
    """compressed-tensors compresses and decompresses"""
    library = "compressed-tensors"
    def __init__(s, format, dtype, activations=None, **weights):
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        from compressed_tensors.compressors import BaseCompressor
        s.format, s.dtype, s.weights = format, dtype, QuantizationArgs(**weights)
        s.scheme = QuantizationScheme(targets=["Linear"], weights=s.weights, input_activations=activations and QuantizationArgs(**activations))
        s.compressor = BaseCompressor.get_value_from_registry(format)
    def config(s, skipped):
        from compressed_tensors.quantization import QuantizationConfig
        c = QuantizationConfig(config_groups={"group_0": s.scheme}, format=s.format, ignore=skipped, quantization_status="compressed")
        return {"quantization_config": json.loads(c.model_dump_json())}
    def pack(s, name, w):
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
        a, sd = s.weights, {"weight": w}
        if a.strategy == "group" or a.strategy == "tensor_group": x = by_groups(w, a.group_size)
        elif a.strategy == "channel": x = w.float().unsqueeze(1)
        elif a.strategy == "block": x = None
        else: x = w.float().reshape(1, 1, -1)
        glob = None
        if a.strategy == "tensor_group":
            sd["weight_global_scale"] = glob = generate_gparam(w.float().amin().reshape(1), w.float().amax().reshape(1)).float()
        if x is None:
            bn, bk = a.block_structure; n, k = -(-w.shape[0] // bn), -(-w.shape[1] // bk)
            p = torch.zeros(n * bn, k * bk); p[:w.shape[0], :w.shape[1]] = w.float()
            p = p.reshape(n, bn, k, bk); low, high = p.amin((1, 3)), p.amax((1, 3))
        else: low, high = x.amin(-1), x.amax(-1)
        scale, zero = calculate_qparams(low, high, a, global_scale=glob)
        if a.strategy == "tensor": scale, zero = scale.reshape(1), zero.reshape(1)
        sd["weight_scale"], sd["weight_zero_point"] = scale.to(s.dtype), zero
        if a.num_bits != 4 or a.type != "float": sd["weight"] = w.to(s.dtype)
        parts = s.compressor.compress(sd, s.scheme)
        if s.scheme.input_activations is not None and s.scheme.input_activations.dynamic is False: parts["input_scale"] = torch.tensor([0.0625]).to(s.dtype)
        if s.scheme.input_activations is not None and s.format.startswith("nvfp4"): parts["input_global_scale"] = torch.tensor([320.0])
        value = s.compressor.decompress({k: v for k, v in parts.items() if not k.startswith("input")}, s.scheme)["weight"]
        return parts, value, s.unrounded(parts, value)
    def unrounded(s, parts, value):
        """where the type of the products is only that of the scales: the library's own arithmetic with float32 ones"""
        from compressed_tensors.quantization.lifecycle.forward import dequantize
        from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
        if s.format == "nvfp4-pack-quantized":
            p = parts["weight_packed"]; q = unpack_fp4_from_uint8(p, p.shape[0], p.shape[1] * 2)
            return dequantize(x_q=q, scale=parts["weight_scale"].to(BF16), args=s.weights, global_scale=parts["weight_global_scale"], dtype=F32)
        if parts.get("weight") is not None and parts["weight"].dtype == E4M3:
            return dequantize(x_q=parts["weight"], scale=parts["weight_scale"].float(), args=s.weights)
        return value.float()

class ActOrder(CompressedTensors):
    """weight_g_idx, which files of llm-compressor before 0.9 have: the library groups sorted columns; the values are by formula"""
    library = "compressed-tensors packs; scale[g_idx] by formula"
    def pack(s, name, w):
        order = torch.from_numpy(np.random.default_rng(len(name)).permutation(w.shape[1])); group = s.weights.group_size
        parts, value, _ = super().pack(name, w[:, order])  # sorted columns
        inverse = torch.empty_like(order); inverse[order] = torch.arange(len(order))
        from compressed_tensors.compressors.pack_quantized import pack_to_int32, unpack_from_int32
        codes = unpack_from_int32(parts["weight_packed"], s.weights.num_bits, w.shape)
        parts["weight_packed"] = pack_to_int32(codes[:, inverse].contiguous(), s.weights.num_bits)
        parts["weight_g_idx"] = (inverse // group).int()
        return parts, value[:, inverse].contiguous(), value[:, inverse].float()

class Fp8:
    """quant_method fp8 and fbgemm_fp8: transformers' Fp8Dequantize"""
    library = "transformers"
    def __init__(s, block=None, scale_dtype=F32, method="fp8", by_row=False): s.block, s.dtype, s.method, s.by_row = block, scale_dtype, method, by_row
    def config(s, skipped):
        if s.method == "fbgemm_fp8": return {"quantization_config": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": skipped}}
        q = {"quant_method": "fp8", "activation_scheme": "dynamic" if s.block else "static", "modules_to_not_convert": skipped}
        if s.block: q.update(fmt="e4m3", weight_block_size=list(s.block))
        else: q.update(weight_block_size=None, dequantize=False)
        return {"quantization_config": q}
    def pack(s, name, w):
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize
        N, K = w.shape; bn, bk = (1, K) if s.by_row else s.block or (N, K); n, k = -(-N // bn), -(-K // bk)
        p = torch.zeros(n * bn, k * bk); p[:N, :K] = w.float(); g = p.reshape(n, bn, k, bk)
        scale = (g.abs().amax((1, 3)) / 448).to(s.dtype)
        q = (g / scale.float()[:, None, :, None]).clamp(-448, 448).reshape(n * bn, k * bk).to(E4M3)
        # the library takes whole blocks alone: it is given the padded matrix
        value = Fp8Dequantize(None)._dequantize_one(q, scale, output_dtype=F32)[:N, :K].contiguous()
        stored = q[:N, :K].contiguous()
        if s.by_row: return {"weight": stored, "weight_scale": scale.reshape(N, 1)}, value, value
        if s.block: return {"weight": stored, "weight_scale_inv": scale}, value, value
        return {"weight": stored, "weight_scale_inv": scale.reshape(()), "activation_scale": torch.tensor(0.03125).to(s.dtype)}, value, value

class ModelOpt:
    """algorithm: module name -> "NVFP4", "FP8" or None"""
    library = "nvidia-modelopt"
    def __init__(s, algo, spelling): s.algo, s.spelling, s.layers = algo, spelling, {}
    def config(s, skipped):
        version = {"name": "modelopt", "version": "0.47.0"}
        if s.spelling == "hf_quant_config":
            q = {"quant_algo": "FP8", "kv_cache_quant_algo": None, "exclude_modules": skipped}
            return {"hf_quant_config": {"producer": version, "quantization": q}}
        if s.spelling == "mixed":
            q = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "exclude_modules": skipped, "quantized_layers": s.layers}
            return {"hf_quant_config": {"producer": version, "quantization": q},
                    "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "producer": version, "ignore": skipped, "quantized_layers": s.layers}}
        part = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
        return {"hf_quant_config": {"producer": version, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": skipped}},
                "quantization_config": {"config_groups": {"group_0": {"input_activations": part, "weights": part, "targets": ["Linear"]}}, "ignore": skipped, "quant_algo": "NVFP4", "producer": version, "quant_method": "modelopt"}}
    def pack(s, name, w):
        from modelopt.torch.quantization.qtensor import NVFP4QTensor, FP8QTensor
        algo = s.algo(name)
        s.layers[name] = {"quant_algo": algo, "group_size": 16} if algo == "NVFP4" else {"quant_algo": algo}
        if algo == "FP8":
            scale = w.float().abs().amax() / 448
            q = FP8QTensor.quantize(w.float(), scale)[0]
            return {"weight": q._quantized_data, "weight_scale": scale, "input_scale": torch.tensor(0.046875)}, *[q.dequantize(F32, scale=scale)] * 2
        q, scale, scale_2 = NVFP4QTensor.quantize(w.clone(), 16)
        value = q.dequantize(F32, scale=scale, double_scale=scale_2, block_sizes={-1: 16})
        return {"weight": q._quantized_data, "weight_scale": scale, "weight_scale_2": scale_2, "input_scale": torch.tensor(0.01171875)}, value, value

def bare(name, path):
    """a package whose __init__ is not run"""
    module = types.ModuleType(name); module.__path__ = [path]; sys.modules[name] = module; return module

class Gptq:
    library = "AutoGPTQ packs v1, GPTQModel v2; GPTQModel decodes both, AutoGPTQ decodes v1 to the same"
    def __init__(s, bits, group, symmetric, act_order=False, v2=False, scale_dtype=F16, spelling="modules", zeros=False):
        s.zeros = zeros  # zero points of 0 too: GPTQModel's v1, which borrows from word to word
        s.bits, s.group, s.symmetric, s.act_order, s.v2, s.dtype, s.spelling = bits, group, symmetric, act_order, v2, scale_dtype, spelling
        if "auto_gptq" not in sys.modules:
            package = bare("gptqmodel", SOURCES + "/GPTQModel/gptqmodel"); package.DEBUG_ON, package.DEVICE_THREAD_POOL = False, None
            try: import gptqmodel.quantization  # its modules import one another in a circle: the second try finds what the first has left
            except ImportError: pass
            for p in ("auto_gptq", "auto_gptq.nn_modules", "auto_gptq.nn_modules.qlinear"): bare(p, SOURCES + "/AutoGPTQ/" + p.replace(".", "/"))
    def config(s, skipped):
        q = {"bits": s.bits, "group_size": s.group, "damp_percent": 0.01, "desc_act": s.act_order, "static_groups": False, "sym": s.symmetric, "true_sequential": True,
             "lm_head": False, "quant_method": "gptq", "checkpoint_format": "gptq_v2" if s.v2 else "gptq"}
        if s.spelling == "dynamic": q["dynamic"] = {"-:" + x: {} for x in skipped}; q["pack_dtype"] = "int32"
        else: q["modules_to_not_convert"] = skipped
        return {"quantization_config": q}
    def pack(s, name, w):
        from auto_gptq.nn_modules.qlinear.qlinear_cuda import QuantLinear
        from gptqmodel.nn_modules.qlinear.torch import TorchLinear
        from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module
        N, K = w.shape; group = s.group if s.group > 0 else K; order = np.arange(K)
        if s.act_order: order = np.random.default_rng(len(name)).permutation(K)
        g_idx = torch.empty(K, dtype=torch.int32); g_idx[torch.from_numpy(order)] = torch.arange(K, dtype=torch.int32) // group
        scales, zeros = int_scales(w[:, torch.from_numpy(order)], group, s.bits, s.symmetric)
        linear = torch.nn.Linear(K, N, bias=False); linear.weight.data = w.to(s.dtype)
        new = TorchLinear(s.bits, s.group, s.symmetric, s.act_order, K, N, bias=False)
        if s.zeros: zeros[::5] = 0; zeros[1::5] = 1
        if s.v2 or s.zeros: new.pack_original(linear, scales.to(s.dtype).float(), zeros.float(), g_idx); parts = {k: getattr(new, k).clone() for k in ("qweight", "qzeros", "scales", "g_idx")}; parts["scales"] = parts["scales"].to(s.dtype)
        else:
            old = QuantLinear(s.bits, group, K, N, bias=False, weight_dtype=s.dtype)
            linear.weight.data = linear.weight.data.float(); old.pack(linear, scales.to(s.dtype).float(), zeros.float(), g_idx)
            old.scales = old.scales.to(s.dtype); parts = {k: getattr(old, k).clone() for k in ("qweight", "qzeros", "scales", "g_idx")}
        for k, v in parts.items(): setattr(new, k, v.clone().contiguous())
        if s.zeros:
            from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
            new.qzero_format(format=2); convert_gptq_v2_to_v1_format_module(new, types.SimpleNamespace(bits=s.bits, pack_dtype=torch.int32)); parts["qzeros"] = new.qzeros.clone()
        if not s.v2: new.qzero_format(format=1); convert_gptq_v1_to_v2_format_module(new, s.bits, torch.int32)
        new.eval(); value = new.dequantize_weight().t().contiguous()
        assert value.dtype == s.dtype
        if not s.v2 and not s.zeros: assert torch.equal(old(torch.eye(K, dtype=s.dtype)).t(), value), name
        return {k: v.contiguous() for k, v in parts.items()}, value, value.float()

class Awq:
    library = "AutoAWQ"
    def __init__(s, group):
        s.group = group
        for p in ("awq", "awq.modules", "awq.modules.linear", "awq.utils"): bare(p, SOURCES + "/AutoAWQ/" + p.replace(".", "/"))
    def config(s, skipped):
        return {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": s.group, "zero_point": True, "version": "gemm", "modules_to_not_convert": skipped}}
    def pack(s, name, w):
        from awq.modules.linear.gemm import WQLinear_GEMM
        from awq.utils.packing_utils import dequantize_gemm
        linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False); linear.weight.data = w.float()
        scales, zeros = int_scales(w, s.group, 4, False)
        q = WQLinear_GEMM.from_linear(linear, 4, s.group, False, scales.t().contiguous().half().float(), zeros.t().contiguous())
        value = dequantize_gemm(q.qweight, q.qzeros, q.scales, 4, s.group).t().contiguous()
        return {"qweight": q.qweight, "qzeros": q.qzeros, "scales": q.scales}, value, value.float()

class BitsAndBytes:
    library = "bitsandbytes"
    def __init__(s, kind, nested, dtype=BF16): s.kind, s.nested, s.dtype = kind, nested, dtype
    def config(s, skipped):
        return {"quantization_config": {"_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": s.kind,
                "bnb_4bit_use_double_quant": s.nested, "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False, "llm_int8_skip_modules": skipped,
                "llm_int8_threshold": 6.0, "load_in_4bit": True, "load_in_8bit": False, "quant_method": "bitsandbytes"}}
    def pack(s, name, w):
        import bitsandbytes.functional as F
        q, state = F.quantize_4bit(w.to(s.dtype), blocksize=64, compress_statistics=s.nested, quant_type=s.kind)
        parts = {"weight": q, **{"weight." + k: v for k, v in state.as_dict(packed=True).items()}}
        again = F.QuantState.from_dict({k: v for k, v in parts.items() if k != "weight"}, torch.device("cpu"))
        # the library's kernel for every device: the one for CPUs takes rows for whole blocks, and other scales where they are not
        from bitsandbytes.backends.default.ops import _dequantize_4bit_compute, _get_4bit_code
        absmax = again.absmax if not s.nested else F.dequantize_blockwise(again.absmax, again.state2) + again.offset
        value = _dequantize_4bit_compute(q.reshape(-1), absmax, _get_4bit_code(s.kind, q.device), 64, again.shape, again.dtype)
        assert w.shape[1] % 64 != 0 or torch.equal(F.dequantize_4bit(q, again), value), name
        return parts, value, value.float()

class Mxfp4Stack:
    """gpt-oss: stacks of experts in blocks; transformers' convert_moe_packed_tensors gives [E, K, N], transposed back here"""
    library = "transformers"
    stacked = True
    def config(s, skipped): return {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": skipped}}
    def pack(s, name, w):
        from modelopt.torch.quantization.qtensor.mxfp4_tensor import MXFP4QTensor
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors
        w = w.transpose(1, 2).contiguous(); E, N, K = w.shape
        q, scale = MXFP4QTensor.quantize(w, 32)[:2]
        blocks, scales = q._quantized_data.reshape(E, N, K // 32, 16), scale.reshape(E, N, K // 32).to(torch.uint8)
        value = convert_moe_packed_tensors(blocks, scales, dtype=BF16)
        return {"_blocks": blocks, "_scales": scales}, value, value.float()
    def split(s, name, *both):
        """single matrices [N, K]; rows of gate and up take turns"""
        base, last = name.rsplit(".", 1)
        for e in range(len(both[0])):
            for part, rows in {"down_proj": {"down_proj": slice(None)}, "gate_up_proj": {"gate_proj": slice(0, None, 2), "up_proj": slice(1, None, 2)}}[last].items():
                yield f"{base}.{e}.{part}.weight", *[x[e].t()[rows] for x in both]

# --- models ---

def config_of(family, **sizes):
    c = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=32, max_position_embeddings=128,
             rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    c.update(sizes)
    cls = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral", "qwen3_moe": "Qwen3Moe", "gpt_oss": "GptOss"}[family]
    if family == "mistral": c["sliding_window"] = None
    return cls, getattr(transformers, cls + "Config")(**c, dtype="bfloat16")

def shapes_of(cls, config, single_experts):
    with torch.device("meta"): model = getattr(transformers, cls + "ForCausalLM")(copy.deepcopy(config))
    shapes = {n: list(p.shape) for n, p in model.named_parameters()}
    if config.tie_word_embeddings: shapes.pop("lm_head.weight", None)
    for n in [n for n in shapes if single_experts and ".experts." in n]:
        base, (E, a, b) = n[:n.index(".experts.") + 9], shapes.pop(n)
        for e in range(E):
            if n.endswith("gate_up_proj"): shapes[f"{base}{e}.gate_proj.weight"] = shapes[f"{base}{e}.up_proj.weight"] = [a // 2, b]
            else: shapes[f"{base}{e}.down_proj.weight"] = [a, b]
    return shapes

def is_matrix(name, shape, layout):
    if getattr(layout, "stacked", False): return len(shape) == 3
    return len(shape) == 2 and "embed" not in name and "router" not in name and not name.endswith("mlp.gate.weight")

def crc(t):
    """of its bytes, a zero always being +0: libraries differ in the sign that they give a code for -0"""
    t = t.contiguous() + 0.0
    return f"{zlib.crc32(t.view(torch.uint8).numpy().tobytes()):08x}"

def outputs(cls, config, decoded, folder):
    """What transformers computes in float32 from the decoded values."""
    with tempfile.TemporaryDirectory() as d:
        config.to_json_file(d + "/config.json"); save_file(decoded, d + "/model.safetensors", {"format": "pt"})
        model, info = getattr(transformers, cls + "ForCausalLM").from_pretrained(d, dtype=F32, attn_implementation="eager", output_loading_info=True)
    assert not info["unexpected_keys"] and set(info["missing_keys"]) <= {"lm_head.weight"}, info
    ids = torch.randint(3, config.vocab_size, (2, 16), generator=torch.Generator().manual_seed(27))
    with torch.no_grad(): one, two = [model.eval()(x[None], use_cache=False).logits[0].float() for x in ids]
    assert torch.isfinite(one).all()
    save_file({"ids": ids[0].int(), "logits": one.contiguous(), "ids2": ids[1].int(), "last2": two[-1].contiguous()}, folder + "/golden.safetensors")

def make(name, family, layout, skipped=(), plain=lambda module: False, single_experts=False, **sizes):
    cls, config = config_of(family, **sizes); stored, decoded, matrices, kept = {}, {}, {}, []
    folder = f"{OUT}/{name}"; os.makedirs(folder, exist_ok=True)
    for n, shape in shapes_of(cls, config, single_experts).items():
        w = weight(n, shape); module = n.removesuffix(".weight")
        if not is_matrix(n, shape, layout) or plain(module):
            stored[n] = w; decoded[n] = w.float()
            if is_matrix(n, shape, layout): kept.append(n)
            continue
        parts, value, unrounded = layout.pack(module, w)
        for k, v in parts.items(): stored[n + k if k[0] == "_" else f"{module}.{k}"] = v.detach().contiguous()
        decoded[n] = unrounded.float().contiguous()
        for matrix, seen, seen32 in layout.split(n, value, unrounded) if getattr(layout, "stacked", False) else [(n, value, unrounded)]:
            matrices[matrix] = {"dims": list(seen.shape), "dtype": NAME_OF[value.dtype], "crc32": crc(seen), "crc32_f32": crc(seen32.float())}
    save_file(stored, folder + "/model.safetensors", {"format": "pt"})
    outputs(cls, config, decoded, folder)
    c = json.loads(config.to_json_string(use_diff=False)); keep = set(json.loads(config.to_json_string(use_diff=True))) | set(sizes) | {"rope_parameters", "tie_word_embeddings"}
    c = {k: v for k, v in c.items() if k in keep and k not in ("quantization_config",)}
    extra = layout.config(list(skipped)); hf = extra.pop("hf_quant_config", None); c.update(extra)
    json.dump(c, open(folder + "/config.json", "w"))
    if hf: json.dump(hf, open(folder + "/hf_quant_config.json", "w"))
    write_golden(folder, layout.library, kept, matrices)
    print(f"{name:20} {len(matrices):3} matrices, {len(kept)} kept plain, {sum(os.path.getsize(folder + '/' + x) for x in os.listdir(folder)) / 1024:.0f} KiB")

def write_golden(folder, library, kept, matrices):
    lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(m)}" for n, m in matrices.items())
    with open(folder + "/golden.json", "w") as f: f.write(f'{{"library": {json.dumps(library)},\n "plain": {json.dumps(kept)},\n "matrices": {{\n{lines}}}}}\n')

def ends(*names): return lambda module: module.endswith(names)
DYNAMIC8 = dict(num_bits=8, type="float", strategy="token", dynamic=True, symmetric=True)
STATIC8 = dict(num_bits=8, type="float", strategy="tensor", dynamic=False, symmetric=True)
def packed(dtype, group, bits=4, symmetric=True, kind=CompressedTensors):
    how = dict(strategy="group", group_size=group) if group else dict(strategy="channel")
    return lambda: kind("pack-quantized", dtype, num_bits=bits, type="int", symmetric=symmetric, **how)
def ct(format, dtype, activations=None, **weights): return lambda: CompressedTensors(format, dtype, activations, **weights)
E4 = dict(num_bits=8, type="float", symmetric=True)
FEW = dict(num_attention_heads=2, num_key_value_heads=1)
SMALL = dict(FEW, intermediate_size=48)
MOE = dict(FEW, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=40, intermediate_size=96, single_experts=True)
mixed = lambda module: "FP8" if "self_attn" in module else "NVFP4"

MODELS = {
    "fp8-block": lambda: make("fp8-block", "llama", Fp8((128, 128)), ["lm_head", "model.layers.0.self_attn.k_proj"], ends("k_proj"), hidden_size=136, intermediate_size=144, **FEW),
    "fp8-static": lambda: make("fp8-static", "mistral", Fp8(None, BF16), **SMALL),
    "fbgemm-fp8": lambda: make("fbgemm-fp8", "llama", Fp8(method="fbgemm_fp8", by_row=True), ["model.layers.0.self_attn.o_proj"], ends("o_proj"), **SMALL),
    "ct-fp8-tensor": lambda: make("ct-fp8-tensor", "llama", ct("float-quantized", BF16, STATIC8, **E4, strategy="tensor")(), **SMALL),
    "ct-fp8-channel": lambda: make("ct-fp8-channel", "qwen3", ct("float-quantized", BF16, DYNAMIC8, **E4, strategy="channel")(), ["re:.*k_proj$"], ends("k_proj"), **SMALL),
    "ct-fp8-block": lambda: make("ct-fp8-block", "qwen3", ct("float-quantized", F32, DYNAMIC8, **E4, strategy="block", block_structure=[64, 64])(), **FEW),
    "ct-fp8-naive": lambda: make("ct-fp8-naive", "llama", ct("naive-quantized", F16, **E4, strategy="channel")(), **SMALL),
    "ct-int8": lambda: make("ct-int8", "qwen3", ct("int-quantized", BF16, dict(num_bits=8, type="int", strategy="token", dynamic=True), num_bits=8, type="int", strategy="channel", symmetric=True)(), **SMALL),
    "ct-int8-asym": lambda: make("ct-int8-asym", "qwen3", ct("naive-quantized", F32, num_bits=8, type="int", strategy="channel", symmetric=False)(), **SMALL),
    "ct-int4-g32": lambda: make("ct-int4-g32", "llama", packed(F16, 32)(), ["lm_head"], ends("lm_head"), tie_word_embeddings=False),
    "ct-int4-g32-asym": lambda: make("ct-int4-g32-asym", "qwen3", packed(BF16, 32, symmetric=False)(), **FEW),
    "ct-int4-g64": lambda: make("ct-int4-g64", "qwen2", packed(BF16, 64)(), ["re:.*self_attn[.]k_proj", "lm_head"], ends("k_proj"), intermediate_size=128),
    "ct-int4-g128-asym": lambda: make("ct-int4-g128-asym", "llama", packed(F16, 128, symmetric=False)(), hidden_size=128, num_attention_heads=8, num_key_value_heads=1, intermediate_size=256),
    "ct-int4-act-order": lambda: make("ct-int4-act-order", "qwen3", packed(F16, 32, kind=ActOrder)(), **FEW),
    "ct-int3-g32": lambda: make("ct-int3-g32", "qwen3", packed(BF16, 32, bits=3)(), **FEW),
    "ct-int8-packed": lambda: make("ct-int8-packed", "llama", packed(BF16, 0, bits=8)(), **SMALL),
    "ct-nvfp4": lambda: make("ct-nvfp4", "llama", ct("nvfp4-pack-quantized", F32, dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, dynamic="local", symmetric=True),
        num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)(), intermediate_size=128),
    "ct-mxfp4": lambda: make("ct-mxfp4", "qwen3", ct("mxfp4-pack-quantized", F32, num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, scale_dtype=torch.uint8)(), **FEW),
    "modelopt-nvfp4": lambda: make("modelopt-nvfp4", "qwen3", ModelOpt(lambda m: "NVFP4", "config"), ["lm_head"], ends("lm_head"), intermediate_size=128, **FEW, tie_word_embeddings=False),
    "modelopt-fp8": lambda: make("modelopt-fp8", "llama", ModelOpt(lambda m: "FP8", "hf_quant_config"), ["lm_head", "model.layers.0.mlp.down_proj"], ends("down_proj"), **SMALL),
    "modelopt-mixed": lambda: make("modelopt-mixed", "llama", ModelOpt(mixed, "mixed"), ["model.layers.1.self_attn*", "lm_head"], lambda m: "layers.1.self_attn" in m, num_hidden_layers=2, intermediate_size=64, **FEW),
    "gptq-4": lambda: make("gptq-4", "qwen2", Gptq(4, 32, True)),
    "gptq-4-asym": lambda: make("gptq-4-asym", "llama", Gptq(4, 32, False), ["self_attn.k_proj"], ends("k_proj")),
    "gptq-4-v2-asym": lambda: make("gptq-4-v2-asym", "qwen3", Gptq(4, 32, False, v2=True, spelling="dynamic"), [".*\\.k_proj.*"], ends("k_proj")),
    "gptq-4-act-order": lambda: make("gptq-4-act-order", "llama", Gptq(4, 32, False, act_order=True), hidden_size=256, intermediate_size=32),
    "gptq-4-zeros": lambda: make("gptq-4-zeros", "qwen3", Gptq(4, 32, False, zeros=True), intermediate_size=64),
    "gptq-8": lambda: make("gptq-8", "qwen3", Gptq(8, 32, False), intermediate_size=64),
    "gptq-3": lambda: make("gptq-3", "qwen3", Gptq(3, 32, False)),
    "gptq-2": lambda: make("gptq-2", "llama", Gptq(2, -1, True)),
    "awq": lambda: make("awq", "llama", Awq(32), ["lm_head", "v_proj"], ends("v_proj")),
    "bnb-nf4": lambda: make("bnb-nf4", "llama", BitsAndBytes("nf4", False), ["lm_head"], **FEW),
    "bnb-nf4-nested": lambda: make("bnb-nf4-nested", "qwen3", BitsAndBytes("nf4", True), ["model.layers.0.self_attn.k_proj", "lm_head"], ends("k_proj"), **FEW),
    "bnb-fp4": lambda: make("bnb-fp4", "qwen3", BitsAndBytes("fp4", False, F16), **FEW),
    "ct-int4-experts": lambda: make("ct-int4-experts", "qwen3_moe", packed(BF16, 16, symmetric=False)(), ["re:.*mlp[.]gate$", "lm_head"], **dict(MOE, moe_intermediate_size=32)),
    "fp8-block-experts": lambda: make("fp8-block-experts", "qwen3_moe", Fp8((32, 32), BF16), ["model.layers.0.mlp.gate"], **MOE),
    "mxfp4-stack": lambda: make("mxfp4-stack", "gpt_oss", Mxfp4Stack(), ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
        **FEW, num_local_experts=3, num_experts_per_tok=2, intermediate_size=32, sliding_window=8, layer_types=["full_attention"], tie_word_embeddings=False),
}

def zebra():
    """A family that nobody knows, with two schemes in one file."""
    folder, stored, matrices = f"{OUT}/zebra", {"stripes.0.scale": weight("stripes.0.scale", [64])}, {}; os.makedirs(folder, exist_ok=True)
    groups = {"stripes.0.wide": packed(BF16, 32)(), "stripes.0.tall": ct("nvfp4-pack-quantized", F32, num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)()}
    for i, (module, layout) in enumerate(groups.items()):
        parts, value, unrounded = layout.pack(module, weight(module + ".weight", [40 + 8 * i, 64]))
        stored.update({f"{module}.{k}": v.contiguous() for k, v in parts.items()})
        matrices[module + ".weight"] = {"dims": list(value.shape), "dtype": NAME_OF[value.dtype], "crc32": crc(value), "crc32_f32": crc(unrounded)}
        layout.scheme.targets, layout.scheme.format = ["re:.*" + module[-4:]], layout.format
    from compressed_tensors.quantization import QuantizationConfig
    q = QuantizationConfig(config_groups={f"group_{i}": x.scheme for i, x in enumerate(groups.values())}, format="mixed-precision", quantization_status="compressed")
    save_file(stored, folder + "/model.safetensors", {"format": "pt"})
    json.dump({"architectures": ["ZebraForCausalLM"], "model_type": "zebra", "hidden_size": 64, "quantization_config": json.loads(q.model_dump_json())}, open(folder + "/config.json", "w"))
    write_golden(folder, "compressed-tensors", [], matrices)

MODELS["zebra"] = zebra
for name in sys.argv[3:] or MODELS: MODELS[name]()
