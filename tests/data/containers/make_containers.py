#!/usr/bin/env python3
"""make_containers.py FAMILIES OUT - the files beside this one, made with torch and safetensors of checkpoints that make_family wrote.

FAMILIES/NAME are those checkpoints (build/release/make_family tests/data/families/NAME FAMILIES/NAME); OUT is this folder.
"""
import collections
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file

families, out = sys.argv[1:]
OLD = {"_use_new_zipfile_serialization": False}


def path(*names):
    name = os.path.join(out, *names)
    os.makedirs(os.path.dirname(name), exist_ok=True)
    return name


def weights(family):
    return collections.OrderedDict(load_file(f"{families}/{family}/model.safetensors"))


def config(family):
    return json.load(open(f"{families}/{family}/config.json"))


def pairs(w, heads):
    """Rows of a rotary pair beside each other: what transformers' conversion of Meta's weights undoes."""
    half = w.shape[0] // heads // 2
    return w.reshape(heads, 2, half, *w.shape[1:]).transpose(1, 2).reshape(w.shape).contiguous()


NAMES = {
    "model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output", "model.layers": "layers",
    "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
    "block_sparse_moe.gate": "feed_forward.gate", "block_sparse_moe.experts": "feed_forward.experts",
}


def consolidated(family, **more):
    c, tensors = config(family), collections.OrderedDict()
    for name, w in weights(family).items():
        for a, b in NAMES.items():
            name = name.replace(a, b)
        if ".wq." in name:
            w = pairs(w, c["num_attention_heads"])
        if ".wk." in name:
            w = pairs(w, c["num_key_value_heads"])
        tensors[name] = w
    params = {"dim": c["hidden_size"], "n_layers": c["num_hidden_layers"], "n_heads": c["num_attention_heads"],
              "n_kv_heads": c["num_key_value_heads"], "norm_eps": c["rms_norm_eps"], "vocab_size": c["vocab_size"],
              "rope_theta": c["rope_parameters"]["rope_theta"], **more}
    return tensors, params


# a checkpoint in one file, and one in two: the second as torch before 1.6 wrote it
llama = weights("llama")
torch.save(llama, path("bin", "pytorch_model.bin"))
names = sorted(llama)
parts = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
for i, (file, part) in enumerate(parts.items()):
    torch.save({n: llama[n] for n in part}, path("bins", file), **(OLD if i == 1 else {}))
with open(path("bins", "pytorch_model.bin.index.json"), "w") as f:
    json.dump({"metadata": {}, "weight_map": {n: file for file, part in parts.items() for n in part}}, f)

# Mistral's own layout, with experts; with YaRN and warmer queries
c = config("mixtral")
tensors, params = consolidated("mixtral", head_dim=c["head_dim"], hidden_dim=c["intermediate_size"],
                               moe={"num_experts": c["num_local_experts"], "num_experts_per_tok": c["num_experts_per_tok"]})
save_file(tensors, path("mixtral", "consolidated.safetensors"))
json.dump(params, open(path("mixtral", "params.json"), "w"))
c = config("ministral3")
rope = c["rope_parameters"]
tensors, params = consolidated("ministral3", head_dim=c["head_dim"], hidden_dim=c["intermediate_size"],
                               yarn={"factor": rope["factor"], "beta": rope["beta_fast"], "alpha": rope["beta_slow"], "apply_scale": False,
                                     "original_max_position_embeddings": rope["original_max_position_embeddings"]},
                               llama_4_scaling={"beta": rope["llama_4_scaling_beta"],
                                                "original_max_position_embeddings": rope["original_max_position_embeddings"]})
save_file(tensors, path("ministral3", "consolidated.safetensors"))
json.dump(params, open(path("ministral3", "params.json"), "w"))

# Meta's: 56 is 2 * 4 * 32 // 3 = 85, times 0.6, up to a multiple of 8; a head's width is stated, as this one is not dim / n_heads
tensors, params = consolidated("llama", multiple_of=8, ffn_dim_multiplier=0.6, head_dim=config("llama")["head_dim"])
torch.save(tensors, path("meta", "consolidated.00.pth"))
json.dump(params, open(path("meta", "params.json"), "w"))

# all that a file may have: views, types, parameters, things beside the weights
t = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
odd = collections.OrderedDict(
    plain=t, turned=t.T, part=t[1:, :], one_column=t[:, 1:2].T.contiguous(), parameter=torch.nn.Parameter(t.float()), fp8=t.to(torch.float8_e4m3fn),
    u16=torch.arange(3).to(torch.uint16), truth=torch.tensor([True, False]), scalar=torch.tensor(1.5, dtype=torch.float16),
    empty=torch.zeros(0, 3), stack_turned=torch.arange(24, dtype=torch.int32).reshape(2, 3, 4).transpose(1, 2), double=torch.tensor([0.1]).double())
odd._metadata = {"": {"version": 1}}
torch.save({"epoch": 3, "model": odd, "lr": 1e-4}, path("odd", "new.pt"))
torch.save({"epoch": 3, "model": odd, "lr": 1e-4}, path("odd", "protocol4.pt"), pickle_protocol=4)
torch.save({"epoch": 3, "model": odd, "lr": 1e-4}, path("odd", "old.pt"), **OLD)
torch.save({"again": t[0:1].expand(5, 4)}, path("odd", "expanded.pt"))
torch.save({"w": torch.nn.Linear(2, 2)}, path("odd", "module.pt"))
