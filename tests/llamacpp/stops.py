#!/usr/bin/env python3
"""stops.py DATA BUILD THEIRS MADE - does llama.cpp stop at every token that a checkpoint says it stops at?

Each case is a family of DATA/families with the special tokens of a published model of it, and the stops that the model's
generation_config.json, config.json or chat template states. The checkpoint is written as GGUF; THEIRS (theirs.cpp) loads its vocabulary and
says which tokens end generation there. A GGUF goes back to a checkpoint and to GGUF again; nothing may be lost on that way.
MADE has the tokenizers that models.py makes. stops.txt is what this printed last. Only the standard library.

Three keys of GGUF name stops: eos, eot and eom; other stops are found by their text. A stop that is found neither way must be said when the GGUF
is written ("WARNING"). Exit 1: a stop that is neither found nor said, a warning about one that is found, or one lost on the way back.
"""
import json
import os
import shutil
import subprocess
import sys

DATA, BUILD, THEIRS, MADE = sys.argv[1:5]
FAMILIES = f"{DATA}/families"

GLM = "[MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> <|observation|> <|endoftext|>".split()
GLM_STOPS = ["<|endoftext|>", "<|user|>", "<|observation|>"]
LLAMA4 = "<|begin_of_text|> <|end_of_text|> <|header_start|> <|header_end|> <|eom|> <|eot|> <|step|>".split()
GEMMA, GEMMA4 = "<pad> <bos> <eos> <start_of_turn> <end_of_turn>".split(), "<pad> <bos> <eos> <|turn> <turn|> <|tool_response>".split()
QWEN = "<|endoftext|> <|im_start|> <|im_end|>".split()
HARMONY = "<|startoftext|> <|endoftext|> <|return|> <|constrain|> <|channel|> <|start|> <|end|> <|message|> <|call|>".split()
NEMOTRON = "<s> </s> <SPECIAL_10> <|im_start|> <SPECIAL_12> <|im_end|>".split()

# family, published model, special tokens, stops, the file that states them
CASES = [
    ("glm4", "GLM-4-0414", GLM, GLM_STOPS, "generation_config"),
    ("glm4", "the same, config.json", GLM, GLM_STOPS, "config"),
    ("glm4_moe", "GLM-4.5, 4.6, 4.7", GLM + ["<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>"], GLM_STOPS, "generation_config"),
    ("glm4_moe_lite", "GLM-4.7-Flash", GLM, GLM_STOPS, "generation_config"),
    ("llama4", "Llama 4", LLAMA4, ["<|end_of_text|>", "<|eom|>", "<|eot|>"], "generation_config"),
    ("llama", "Llama 3.1", "<|begin_of_text|> <|end_of_text|> <|eom_id|> <|eot_id|>".split(),
     ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"], "generation_config"),
    ("gemma2", "Gemma 2", GEMMA, ["<eos>", "<end_of_turn>"], "generation_config"),
    ("gemma3", "Gemma 3", GEMMA, ["<eos>", "<end_of_turn>"], "config"),
    ("gemma4", "Gemma 4 E2B", GEMMA4, ["<eos>", "<turn|>", "<|tool_response>"], "generation_config"),
    ("gemma4_moe", "Gemma 4 26B-A4B", GEMMA4, ["<eos>", "<turn|>", "<|tool_response>"], "generation_config"),
    ("qwen2", "Qwen2.5", QWEN, ["<|im_end|>", "<|endoftext|>"], "generation_config"),
    ("qwen2", "eos <|endoftext|>, turns <|im_end|>", QWEN, ["<|endoftext|>"], "template"),
    ("qwen2", "the same, turns <|over|>", ["<|endoftext|>", "<|im_start|>", "<|over|>"], ["<|endoftext|>"], "template"),
    ("qwen3", "Qwen3", QWEN, ["<|im_end|>", "<|endoftext|>"], "config"),
    ("qwen3_5", "Qwen3.5", QWEN, ["<|im_end|>", "<|endoftext|>"], "generation_config"),
    ("qwen3_moe", "Qwen3 tokens, GLM's turns", QWEN + ["<|user|>", "<|observation|>"], GLM_STOPS, "generation_config"),
    ("gpt_oss", "gpt-oss", HARMONY, ["<|return|>", "<|endoftext|>", "<|call|>"], "generation_config"),
    ("gpt_oss", "<|return|> without <|call|>", HARMONY[:-1], ["<|return|>", "<|end|>"], "generation_config"),
    ("phi3", "Phi 3", "<s> </s> <|endoftext|> <|assistant|> <|system|> <|end|> <|user|>".split(),
     ["<|end|>", "<|assistant|>", "<|endoftext|>"], "generation_config"),
    ("nemotron_h", "Nemotron-H", NEMOTRON, ["</s>", "<SPECIAL_12>", "<|im_end|>"], "generation_config"),
    ("seed_oss", "Seed-OSS", "<seed:bos> <seed:pad> <seed:eos>".split(), ["<seed:eos>"], "config"),
    ("cohere2", "Command R7B", "<PAD> <BOS_TOKEN> <|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|>".split(), ["<|END_OF_TURN_TOKEN|>"], "config"),
    ("minimax_m2", "MiniMax-M2", "]~!b[ ]~b] [e~[ <fim_pad>".split(), ["[e~["], "generation_config"),
    ("deepseek_v3", "DeepSeek V3", "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜>".split(), ["<｜end▁of▁sentence｜>"], "config"),
    ("granite", "five unknown stops", "<a> <b> <c> <d> <e>".split(), ["<a>", "<b>", "<c>", "<d>", "<e>"], "generation_config"),
]

failures = []


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {(done.stdout + done.stderr).strip() or done.returncode}")
    return done.stdout + done.stderr


def added(id, text):
    return {"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def write_json(path, content):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, ensure_ascii=False)


def tokenizer_of(family, tokens):
    """The vocabulary of models.py with other special tokens, and their ids."""
    kind = "qwen2-spm" if family.startswith("gemma") else "qwen2-bytes"
    t = json.load(open(f"{MADE}/{kind}/tokenizer.json", encoding="utf-8"))
    known, t["post_processor"] = t["model"]["vocab"], None
    first = max(known.values()) + 1
    ids = {text: first + i for i, text in enumerate(tokens)}
    t["added_tokens"] = [a for a in t["added_tokens"] if a["content"] in known] + [added(i, text) for text, i in ids.items()]
    return t, ids


def checkpoint(case, folder):
    """The folder with a checkpoint of the case; returns the ids of its stops."""
    family, _, tokens, stops, file = case
    tokenizer, ids = tokenizer_of(family, tokens)
    n, wanted = max(ids.values()) + 1, [ids[s] for s in stops]
    config, tensors = (json.load(open(f"{FAMILIES}/{family}/{name}.json", encoding="utf-8")) for name in ("config", "tensors"))
    was = config["vocab_size"]
    for name, tensor in tensors["tensors"].items():
        if "embed" in name or "lm_head" in name:
            tensor[0] = [n if dim == was else dim for dim in tensor[0]]
    config.update(vocab_size=n, eos_token_id=wanted if file == "config" else wanted[0], bos_token_id=None, pad_token_id=None)
    if "vocab_size_per_layer_input" in config:
        config["vocab_size_per_layer_input"] = n
    os.makedirs("shape", exist_ok=True)
    write_json("shape/config.json", config)
    write_json("shape/tensors.json", tensors)
    run(f"{BUILD}/make_family", "shape", folder)
    write_json(f"{folder}/tokenizer.json", tokenizer)
    spoken = {"eos_token": stops[0], "tokenizer_class": "PreTrainedTokenizerFast"}
    if file == "template":
        end = tokens[-1]
        spoken["chat_template"] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}" + end + "\n{% endfor %}"
        wanted.append(ids[end])
    write_json(f"{folder}/tokenizer_config.json", spoken)
    if file == "generation_config":
        write_json(f"{folder}/generation_config.json", {"eos_token_id": wanted})
    return wanted


def found_by(gguf):
    lines = run(THEIRS, "stops", gguf).splitlines()
    return {int(line.split(" ", 1)[0]): line.split(" ", 1)[1] for line in lines}


def judge(case, at):
    family, model, _, _, file = case
    name = f"stops-{at}"
    wanted = checkpoint(case, name)
    said = run(f"{BUILD}/aprconv", "convert", name, f"{name}.gguf")
    run(f"{BUILD}/aprconv", "convert", f"{name}.gguf", f"{name}-back")
    run(f"{BUILD}/aprconv", "convert", f"{name}-back", f"{name}-again.gguf")
    found, again = found_by(f"{name}.gguf"), found_by(f"{name}-again.gguf")
    missed, more = [i for i in wanted if i not in found], [text for i, text in found.items() if i not in wanted]
    warned = "GGUF has no key for it" in said or "other programs do not stop there" in said
    what = f"{family}, {model}"
    if missed and not warned:
        failures.append(f"{what}: llama.cpp does not stop at {missed}, and no warning says so")
    if warned and not missed:
        failures.append(f"{what}: a warning is given, and llama.cpp stops at every one")
    if again != found:
        failures.append(f"{what}: after GGUF, checkpoint and GGUF llama.cpp stops at {sorted(again)}, before at {sorted(found)}")
    count = f"{len(wanted) - len(missed)}/{len(wanted)}"
    print(f"{family:14} {model:38} {file:18} {count:6} {'warned' if warned else '-':7} {' '.join(more) or '-'}")
    for path in (name, f"{name}-back", "shape"):
        shutil.rmtree(path)
    for path in (f"{name}.gguf", f"{name}-again.gguf"):
        os.remove(path)


print(f"{'family':14} {'as published':38} {'stated in':18} {'found':6} {'said':7} llama.cpp stops also at")
for at, case in enumerate(CASES):
    try:
        judge(case, at)
    except RuntimeError as e:
        failures.append(f"{case[0]}, {case[1]}: {e}")
for failure in failures:
    print(f"FAILED {failure}")
sys.exit(len(failures) > 0)
