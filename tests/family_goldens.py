#!/usr/bin/env python3
"""family_goldens.py OUT SEED [NAME...] - small models of families, and what transformers computes from them.

Makes folders like those of tests/data/families: config.json, tensors.json (the formula of its weights: tests/support/family_model.c) and
golden.safetensors. Needs torch, transformers and safetensors. Odd seeds give the widths of tests/data/families, even seeds those of
tests/data/families-even. From seed 3 on, options of the classes are drawn by the seed: biases, tied embeddings, rotary scaling.
"""
import json
import os
import random
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.utils.logging.disable_progress_bar()

OUT, SEED = sys.argv[1], int(sys.argv[2])
EVEN = SEED % 2 == 0
HIDDEN, WIDTH, HEAD, EXPERTS, USED, EXPERT_WIDTH = (48, 80, 16, 5, 2, 28) if EVEN else (32, 56, 12, 6, 3, 20)
SLIDING, FULL = "sliding_attention", "full_attention"
drawn = random.Random(SEED)


def draw(value, usual):
    """VALUE in half of the cases from seed 3 on."""
    return value if SEED > 2 and drawn.random() < 0.5 else usual


def base(**more):
    tied = {"tie_word_embeddings": drawn.random() < 0.5} if SEED > 2 else {}
    return {"vocab_size": 132 if EVEN else 148, "hidden_size": HIDDEN, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
            "intermediate_size": WIDTH, "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **tied, **more}


def yarn(theta):
    return {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": theta, "beta_fast": 32.0, "beta_slow": 1.0}


def llama3(theta):
    return {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
            "rope_theta": theta}


def plain(theta):
    return {"rope_type": "default", "rope_theta": theta}


def biased():
    return {"attention_bias": True} if SEED > 2 and drawn.random() < 0.5 else {}


MULTIPLIERS = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0625, "logits_scaling": 8.0}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": USED, "moe_intermediate_size": EXPERT_WIDTH, "n_shared_experts": 1 + EVEN}
CHOSEN = {"num_experts": 8, "num_experts_per_tok": USED, "moe_intermediate_size": EXPERT_WIDTH, "num_shared_experts": 1 + EVEN}
LISTED = [SLIDING, SLIDING, FULL, SLIDING] if EVEN else [SLIDING, SLIDING, SLIDING, FULL]
WINDOWED = {"sliding_window": 8, "layer_types": LISTED}
LATENT = {"kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20}
CHANNELS = {**LATENT, "num_key_value_heads": 4, "linear_head_dim": HEAD, "linear_num_heads": 4, "num_local_experts": 8, "num_experts_per_tok": USED,
            "moe_intermediate_size": EXPERT_WIDTH, "n_shared_experts": 1 + EVEN, "topk_group": 2, "n_group": 4, "routed_scaling_factor": 2.5,
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}
# heads enough that few scores are zero: topk chooses among equal ones as it likes
INDEXED = {**LATENT, **ROUTED, "num_key_value_heads": 4, "q_lora_rank": 40, "index_n_heads": 10 if EVEN else 7, "index_head_dim": 20 if EVEN else 16}
HEADED = {"num_key_value_heads": 4, "num_attention_heads": 4}
TOWER = {"depth": 2, "hidden_size": 24, "intermediate_size": 40, "num_heads": 2, "out_hidden_size": HIDDEN, "patch_size": 4, "fullatt_block_indexes": [1]}
SECTIONS = {"mrope_section": [2, 2, 2] if not EVEN else [4, 2, 2]}


def vl_tower(**more):
    return {"depth": 3, "hidden_size": 24, "intermediate_size": 40, "num_heads": 2, "out_hidden_size": HIDDEN, "patch_size": 4,
            "num_position_embeddings": 16, "deepstack_visual_indexes": [1, 2], **more}


def larger(text, tower):
    return {"text_config": text, "vision_config": tower, "image_token_id": 130, "video_token_id": 131, "vision_start_token_id": 129}


def dense_vl():
    return base(rope_parameters={**plain(10000.0), "mrope_section": [2, 3, 1]}) | {"hidden_size": 48}  # qwen2's heads fill the hidden state


FAMILIES = {
    "gemma": ("Gemma", lambda: base(head_dim=HEAD, **biased())),
    "olmo3": ("Olmo3", lambda: base(**WINDOWED, **biased(), rope_parameters={FULL: draw(plain(500000.0), yarn(10000.0)), SLIDING: plain(10000.0)})),
    "olmoe": ("Olmoe", lambda: base(num_experts=EXPERTS, num_experts_per_tok=USED, intermediate_size=EXPERT_WIDTH, norm_topk_prob=draw(True, False),
                                    **draw(HEADED, {}))),
    "ernie4_5": ("Ernie4_5", lambda: base(head_dim=HEAD, use_bias=draw(True, False))),
    "hunyuan_v1_dense": ("HunYuanDenseV1", lambda: base(head_dim=HEAD, **biased(), rope_parameters=draw(
        {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0}, plain(10000.0)))),
    "exaone4": ("Exaone4", lambda: base(**draw({"sliding_window": None, "layer_types": [FULL] * 4}, WINDOWED),
                                        rope_parameters=draw(plain(10000.0), llama3(10000.0)))),
    "exaone_moe": ("ExaoneMoe", lambda: base(head_dim=HEAD, **CHOSEN, **WINDOWED, n_group=4, topk_group=2,
                                             first_k_dense_replace=1, routed_scaling_factor=2.5)),
    "granitemoe": ("GraniteMoe", lambda: base(**MULTIPLIERS, num_local_experts=EXPERTS, num_experts_per_tok=USED, intermediate_size=EXPERT_WIDTH,
                                              **biased())),
    "granitemoeshared": ("GraniteMoeShared", lambda: base(**MULTIPLIERS, num_local_experts=EXPERTS, num_experts_per_tok=USED,
                                                          intermediate_size=EXPERT_WIDTH, shared_intermediate_size=draw(0, 36))),
    "arcee": ("Arcee", lambda: base(head_dim=HEAD, **biased(), mlp_bias=draw(True, False), rope_parameters=draw(llama3(10000.0), yarn(10000.0)))),
    "dots1": ("Dots1", lambda: base(head_dim=HEAD, **ROUTED, **biased(), first_k_dense_replace=1, n_group=4, topk_group=2, norm_topk_prob=True,
                                    routed_scaling_factor=2.5)),
    "solar_open": ("SolarOpen", lambda: base(head_dim=HEAD, **ROUTED, **biased(), routed_scaling_factor=1.5,
                                             rope_parameters=draw(plain(10000.0), yarn(10000.0)))),
    "hy_v3": ("HYV3", lambda: base(head_dim=HEAD, **CHOSEN, **biased())),
    "afmoe": ("Afmoe", lambda: base(head_dim=HEAD, **CHOSEN, **WINDOWED, **biased(), num_dense_layers=1, route_scale=1.3,
                                    mup_enabled=draw(False, True))),
    "mellum": ("Mellum", lambda: base(head_dim=HEAD, num_local_experts=EXPERTS, num_experts_per_tok=USED, moe_intermediate_size=EXPERT_WIDTH,
                                      **WINDOWED, **biased(), rope_parameters={FULL: draw(yarn(500000.0), plain(500000.0)), SLIDING: plain(10000.0)},
                                      mlp_layer_types=draw(["dense", "sparse", "sparse", "sparse"], ["sparse"] * 4))),
    "internlm3": ("InternLM3", lambda: base(head_dim=HEAD, **draw({"qkv_bias": True, "bias": True}, {}))),
    "iquestcoder": ("IQuestCoder", lambda: base(head_dim=HEAD, **biased())),
    "ministral": ("Ministral", lambda: base(head_dim=HEAD, **WINDOWED)),
    "seed_oss": ("SeedOss", lambda: base(head_dim=HEAD, attention_bias=draw(False, True), attention_out_bias=draw(True, False),
                                         mlp_bias=draw(True, False))),
    "gemma3n": ("Gemma3nText", lambda: base(
        head_dim=HEAD, **WINDOWED, vocab_size_per_layer_input=120, hidden_size_per_layer_input=8, intermediate_size=[WIDTH] * 4,
        altup_num_inputs=4 if EVEN else 3, altup_active_idx=draw(1, 0), laurel_rank=12 if EVEN else 8, num_kv_shared_layers=1 if EVEN and SEED > 2 else 0,
        activation_sparsity_pattern=[0.7, 0.7, 0.0, 0.0] if EVEN else [0.5, 0.0, 0.0, 0.0], final_logit_softcapping=30.0,
        rope_parameters={FULL: plain(1000000.0), SLIDING: plain(10000.0)})),
    "kimi_linear": ("KimiLinear", lambda: base(**CHANNELS, layer_types=["linear_attention", "full_attention"] * 2 if EVEN else
                                               ["linear_attention", "linear_attention", "full_attention", "linear_attention"])),
    "bailing_hybrid": ("BailingHybrid", lambda: base(**CHANNELS, layer_group_size=2 + EVEN, kda_safe_gate=draw(False, True), kda_lower_bound=-5.0)),
    "deepseek_v32": ("DeepseekV32", lambda: base(**INDEXED, **draw({"rope_parameters": yarn(10000.0)}, {}), n_group=4, topk_group=2, first_k_dense_replace=1,
                                                 index_topk=9 if EVEN else 12)),
    "glm_moe_dsa": ("GlmMoeDsa", lambda: base(**INDEXED, first_k_dense_replace=1 + EVEN, index_topk=14 if EVEN else 7,
                                              **({"indexer_types": ["full", "shared", "shared", "full"]} if EVEN else {}))),
    "qwen2_vl": ("Qwen2VL", lambda: larger(dense_vl(), {"depth": 2, "embed_dim": 24, "hidden_size": 48, "num_heads": 2, "patch_size": 4})),
    "qwen2_5_vl": ("Qwen2_5_VL", lambda: larger(dense_vl(), {**TOWER, "out_hidden_size": 48})),
    "qwen3_vl": ("Qwen3VL", lambda: larger(base(head_dim=HEAD, **biased(), rope_parameters={**plain(10000.0), **SECTIONS, "mrope_interleaved": True}),
                                           vl_tower())),
    "qwen3_vl_moe": ("Qwen3VLMoe", lambda: larger(
        base(head_dim=HEAD, num_experts=EXPERTS, num_experts_per_tok=USED, moe_intermediate_size=EXPERT_WIDTH, **biased(),
             rope_parameters={**plain(10000.0), **SECTIONS, "mrope_interleaved": True}), vl_tower())),
}


FAMILIES["qwen3_vl_moe_hub"] = FAMILIES["qwen3_vl_moe"]  # published checkpoints have the experts transposed


def is_transposed(family, key):
    return family.endswith("_hub") and ".mlp.experts." in key


def stored_as(family, key):
    """Published checkpoints of kimi_linear have the dense layer's matrices under mlp, those of transformers 5 under block_sparse_moe."""
    return key.replace("block_sparse_moe", "mlp") if family == "kimi_linear" and not EVEN and ".layers.0." in key else key


def model_class(name):
    for ending in ("ForCausalLM", "ForConditionalGeneration"):
        if hasattr(transformers, name + ending): return getattr(transformers, name + ending)
    return transformers.AutoModelForCausalLM


def rule(name, tensor):
    """Mean and deviation of a tensor's numbers: wide enough for gates and choices to matter."""
    if name.endswith(("correction_bias", "expert_bias")): return 0, 0.1
    if "norm" in name and tensor.ndim == 1: return (0 if name.endswith("bias") or (tensor == 0).all() else 1), 0.2
    if tensor.ndim <= 1: return 0, 0.3
    return (0, 0.7) if "embed_tokens" in name else (0, round(1.3 / tensor.shape[-1] ** 0.5, 6))


def numbers(name, shape, mean, deviation):
    """The formula of tests/support/family_model.c."""
    n, z = int(np.prod(shape)), 0xcbf29ce484222325
    for c in name.encode(): z = ((z ^ c) * 0x100000001b3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64((z + SEED) % 2**64) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        z ^= z >> np.uint64(31)
    sums = sum(((z >> np.uint64(8 * i)) & np.uint64(255)).astype(np.float64) for i in range(4)) - 510.0
    values = torch.from_numpy((mean + deviation * (sums / 147.8)).astype(np.float32))
    return values.reshape(shape).to(torch.bfloat16)


def make(name):
    class_name, options = FAMILIES[name]
    folder = f"{OUT}/{name}"
    config = getattr(transformers, class_name + "Config")(**options())
    config._attn_implementation = "eager"
    kind = model_class(class_name)
    build = kind.from_config if kind is transformers.AutoModelForCausalLM else kind
    build(config).to(torch.bfloat16).save_pretrained(folder)
    weights = load_file(f"{folder}/model.safetensors")
    stored = {stored_as(name, key): tensor.mT if is_transposed(name, key) else tensor for key, tensor in sorted(weights.items())}
    table = {key: [list(tensor.shape), *rule(key, tensor.float())] for key, tensor in stored.items()}
    made = {key: numbers(key, *row) for key, row in table.items()}
    save_file({key: tensor.mT.contiguous() if is_transposed(name, key) else tensor for key, tensor in made.items()},
              f"{folder}/model.safetensors", {"format": "pt"})
    model, info = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"]: raise RuntimeError(info)
    model.eval()
    ids = torch.randint(3, 129, (2, 48), generator=torch.Generator().manual_seed(3 * SEED))
    with torch.no_grad():
        one = model(input_ids=ids[:1], use_cache=False, output_hidden_states=True)
        other = model(input_ids=ids[1:], use_cache=False)
    golden = {"ids": ids[0].int(), "ids2": ids[1].int(), "logits": one.logits[0].contiguous(), "last2": other.logits[0, -1].contiguous()}
    if getattr(one, "hidden_states", None) and one.hidden_states[0].ndim == 3: golden["hidden"] = torch.stack([x[0] for x in one.hidden_states]).contiguous()
    save_file(golden, f"{folder}/golden.safetensors")
    rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in table.items())
    with open(f"{folder}/tensors.json", "w", encoding="utf-8") as f:
        f.write(f'{{"seed": {SEED}, "dtype": "BF16", "tensors": {{\n{rows}\n}}}}\n')
    for file in ("model.safetensors", "generation_config.json"):
        if os.path.exists(f"{folder}/{file}"): os.remove(f"{folder}/{file}")
    print(f"{name:18} {model.__class__.__name__}, {len(table)} tensors, largest logit {golden['logits'].abs().max():.3f}")


failed = 0
for family in sys.argv[3:] or FAMILIES:
    try: make(family)
    except Exception as problem: # pylint: disable=broad-except
        failed += 1
        print(f"{family}: {type(problem).__name__}: {problem}"[:600])
sys.exit(failed > 0)
