#!/usr/bin/env python3
"""models.py DATA OUT - small checkpoints of four families with six tokenizers, and texts to try them on. Only the standard library.

OUT/NAME/     a checkpoint each: config.json, model.safetensors (BF16 noise), tokenizer.json, tokenizer_config.json
OUT/texts.bin u32 length and UTF-8 bytes for each text; OUT/texts-nfc.bin: the same, normalised, for tokenizers that normalise
OUT/ids.txt   token ids to compute logits for, one line
"""
import json, os, random, struct, sys, unicodedata

DATA, OUT = sys.argv[1], sys.argv[2]
SPACE = "\u2581"
HELDOUT = open(f"{DATA}/heldout.txt", encoding="utf-8").read()

# --- tokenizers ---

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def added(id, text, special=True):
    return {"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}


def begin_with(token, id):
    part = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": part, "pair": part, "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}}}


def byte_level(kind):
    """The bundled vocabulary: as qwen2 splits (its own), as llama 3 does, or as GPT-2 does."""
    t = json.load(open(f"{DATA}/tiny-llama/tokenizer.json", encoding="utf-8"))
    if kind == "llama3":
        t["normalizer"] = None
        t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = LLAMA3
        t["model"]["ignore_merges"] = True
        t["post_processor"] = begin_with("<|im_start|>", 2047)
    if kind == "gpt2":
        t["normalizer"] = None
        t["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    if kind == "llama3":
        config["bos_token"] = "<|im_start|>"
    return t, config


def learn_merges(n):
    """Byte-pair encoding of the words of heldout.txt: each token has one merge, as the tokenizers library trains them."""
    counts = {}
    for word in HELDOUT.split():
        word = tuple(SPACE + word)
        counts[word] = counts.get(word, 0) + 1
    merges = []
    for _ in range(n):
        pairs = {}
        for word, count in counts.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + count
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        joined = {}
        for word, count in counts.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append(best[0] + best[1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            joined[tuple(out)] = joined.get(tuple(out), 0) + count
        counts = joined
    return merges


def sentencepiece(kind):
    """trained: by SentencePiece, with every cut of a token as a merge; own: one merge a token; gemma: no space in front."""
    if kind == "own":
        merges = learn_merges(400)
        pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
        pieces += sorted(set(HELDOUT) - {"\n", " "} | {SPACE, "é", "中"}) + [a + b for a, b in merges]
        merges = [list(m) for m in merges]
    else:
        spm = json.load(open(f"{DATA}/tokenizer/spm.json", encoding="utf-8"))
        pieces, merges = spm["pieces"], [m.split(" ") for m in spm["hf_merges"]]
    prefix = [] if kind == "gemma" else [{"type": "Prepend", "prepend": SPACE}]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    extra = [added(len(pieces), "[INST]", False), added(len(pieces) + 1, "<|user|>", True)]
    t = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")] + extra,
        "normalizer": {"type": "Sequence", "normalizers": prefix + [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]},
        "pre_tokenizer": None,
        "post_processor": begin_with("<s>", 1),
        "decoder": None,
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": merges},
    }
    return t, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "tokenizer_class": "PreTrainedTokenizerFast"}


# --- weights ---

def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def noise(rng, n, mean, deviation):
    """n numbers out of 256 near a normal distribution, as BF16."""
    steps = sorted(sum(random.Random(i).uniform(-1, 1) for _ in range(4)) * 0.866 for i in range(256))
    words = [bf16(mean + deviation * s) for s in steps]
    low, high, draws = bytes(w & 255 for w in words), bytes(w >> 8 for w in words), rng.randbytes(n)
    out = bytearray(2 * n)
    out[0::2], out[1::2] = draws.translate(low), draws.translate(high)
    return bytes(out)


def tensors_of(c, biases):
    h, kv, d, ff, v = c["hidden_size"], c["num_key_value_heads"], c["head_dim"], c["intermediate_size"], c["vocab_size"]
    q = c["num_attention_heads"]
    yield "model.embed_tokens.weight", [v, h], 0, 0.5
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", [h], 1, 0.1
        for name, out, into in (("q", q * d, h), ("k", kv * d, h), ("v", kv * d, h), ("o", h, q * d)):
            yield at + f"self_attn.{name}_proj.weight", [out, into], 0, 0.06
            if name in biases:
                yield at + f"self_attn.{name}_proj.bias", [out], 0, 0.1
        if c["model_type"] == "qwen3":
            yield at + "self_attn.q_norm.weight", [d], 1, 0.1
            yield at + "self_attn.k_norm.weight", [d], 1, 0.1
        yield at + "post_attention_layernorm.weight", [h], 1, 0.1
        for name, out, into in (("gate", ff, h), ("up", ff, h), ("down", h, ff)):
            yield at + f"mlp.{name}_proj.weight", [out, into], 0, 0.05
            if name in biases:
                yield at + f"mlp.{name}_proj.bias", [out], 0, 0.1
    yield "model.norm.weight", [h], 1, 0.1
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", [v, h], 0, 0.06


def write_weights(path, tensors, seed):
    rng, header, chunks, at = random.Random(seed), {}, [], 0
    for name, shape, mean, deviation in tensors:
        n = 1
        for s in shape:
            n *= s
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * n]}
        chunks.append(noise(rng, n, mean, deviation))
        at += 2 * n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
QKV = {"q", "k", "v"}
MODELS = [  # name, family, tokenizer, biases, what else config.json says
    ("llama-bytes", "llama", byte_level("llama3"), set(),
     {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                               "original_max_position_embeddings": 8192}}),
    ("llama-spm", "llama", sentencepiece("trained"), QKV | {"o"}, {"attention_bias": True}),
    ("mistral-bytes", "mistral", byte_level("gpt2"), set(), {"sliding_window": None, "tie_word_embeddings": True}),
    ("mistral-spm", "mistral", sentencepiece("own"), set(), {"sliding_window": None, "rope_theta": 1000000.0}),
    ("qwen2-bytes", "qwen2", byte_level("qwen2"), QKV, {"rope_theta": 1000000.0, "tie_word_embeddings": True}),
    ("qwen2-spm", "qwen2", sentencepiece("gemma"), QKV,
     {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}}),
    ("qwen3-bytes", "qwen3", byte_level("qwen2"), set(), {"head_dim": 96, "rope_theta": 1000000.0}),
    ("qwen3-spm", "qwen3", sentencepiece("own"), set(), {"head_dim": 32, "tie_word_embeddings": True,
                                                       "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
]


def write_model(name, family, tokenizer, biases, more, seed):
    t, tokenizer_config = tokenizer
    config = {"architectures": [CLASSES[family]], "model_type": family, "hidden_act": "silu", "hidden_size": 256, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "max_position_embeddings": 512,
              "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    config["vocab_size"] = max(list(t["model"]["vocab"].values()) + [a["id"] for a in t["added_tokens"]]) + 1
    config.update(more)
    folder = f"{OUT}/{name}"
    os.makedirs(folder, exist_ok=True)
    for file, content in (("config.json", config), ("tokenizer.json", t), ("tokenizer_config.json", tokenizer_config)):
        with open(f"{folder}/{file}", "w", encoding="utf-8") as f:
            json.dump(content, f, ensure_ascii=False)
    write_weights(f"{folder}/model.safetensors", tensors_of(config, biases), seed)


# --- texts ---

TRICKY = ["", " ", "  ", "   a", "a   b", "\n", "\n\n\n", " \n \n", "\t\tx", "a\r\nb\r", "don't I'LL we'Ve 'S", "it\u2019s", "x=1234567890;", "3.14159",
          "naïve café Straße", "e\u0301 A\u030a \u1100\u1161\u11a8", "İstanbul ǅ ﬁ", "한국어 日本語 中文测试", "العربية עברית हिन्दी ไทย",
          "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 🇩🇪", "½ ² Ⅷ ٣٤٥ १२३", "\u00a0\u3000\u2003x", "\u200b\u200d\ufeff", "▁▁ ▁a ▁", "Ġthe Ċ",
          "<0x0A><0x41>", "[INST] the [/INST]", "<s>the</s>", "a<s> b", "<|im_start|>user\nhi<|im_end|>\n", "[INST]  two  spaces[INST]x", "\u0378\U000e0001",
          "http://example.com/a?b=c&d=e", "#include <stdio.h>\nint main() { return 0; }", "=" * 70, "." * 33, "\u0001\u007f\u0085", "𝕳𝖊𝖑𝖑𝖔 𐍈"]
RANGES = [(0x20, 0x7e), (0xa0, 0x17f), (0x300, 0x36f), (0x370, 0x4ff), (0x590, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x2000, 0x206f),
          (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0x1f300, 0x1f64f), (0x20000, 0x2a6df)]


def texts():
    rng = random.Random(7)
    yield from TRICKY
    yield from HELDOUT.split("\n")
    words = HELDOUT.split()
    for _ in range(400):
        yield "".join(rng.choice(words) + rng.choice([" ", "  ", "\n", "", ", ", "-", "\t", " \n"]) for _ in range(rng.randint(1, 12)))
    for _ in range(400):
        yield "".join(chr(rng.randint(*rng.choice(RANGES))) for _ in range(rng.randint(1, 20)))
    for _ in range(200):
        yield "".join(rng.choice(" \t\n\ra1.'é▁<>[]") for _ in range(rng.randint(1, 25)))


def write_texts(path, items):
    with open(path, "wb") as f:
        for text in items:
            raw = text.encode("utf-8")
            f.write(struct.pack("<I", len(raw)) + raw)


os.makedirs(OUT, exist_ok=True)
for seed, model in enumerate(MODELS):
    write_model(*model, seed)
write_texts(f"{OUT}/texts.bin", texts())
write_texts(f"{OUT}/texts-nfc.bin", (unicodedata.normalize("NFC", t) for t in texts()))
with open(f"{OUT}/ids.txt", "w") as f:
    rng = random.Random(3)
    f.write(" ".join(str(rng.randint(3, 590)) for _ in range(64)) + "\n")
print(" ".join(m[0] for m in MODELS))
