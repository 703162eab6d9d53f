"""The sound models that mutants are made of, made by the tools themselves from what the checkout has."""
import json, os, random, shutil, struct, subprocess


def micro(folder, data):
    """One layer of qwen2 with the tokenizer, template and settings of data/tiny-qwen2."""
    os.makedirs(folder)
    source = os.path.join(data, "tiny-qwen2")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        shutil.copy(os.path.join(source, name), folder)
    config = json.load(open(os.path.join(source, "config.json")))
    config.update(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, layer_types=["full_attention"], max_position_embeddings=1024, tie_word_embeddings=True)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    p = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], 32], "model.norm.weight": [32], p + "input_layernorm.weight": [32], p + "post_attention_layernorm.weight": [32],
              p + "self_attn.q_proj.weight": [32, 32], p + "self_attn.q_proj.bias": [32], p + "self_attn.k_proj.weight": [16, 32], p + "self_attn.k_proj.bias": [16],
              p + "self_attn.v_proj.weight": [16, 32], p + "self_attn.v_proj.bias": [16], p + "self_attn.o_proj.weight": [32, 32],
              p + "mlp.gate_proj.weight": [64, 32], p + "mlp.up_proj.weight": [64, 32], p + "mlp.down_proj.weight": [32, 64]}
    r, header, data_bytes = random.Random(1), {}, b""
    for name, shape in sorted(shapes.items()):
        n = 1
        for d in shape:
            n *= d
        body = b"".join(struct.pack("<f", r.gauss(0, 0.2))[2:] for _ in range(n))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data_bytes), len(data_bytes) + len(body)]}
        data_bytes += body
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data_bytes)


def shards(folder, out):
    """The same checkpoint in two files with an index."""
    os.makedirs(out)
    shutil.copy(os.path.join(folder, "config.json"), out)
    blob = open(os.path.join(folder, "model.safetensors"), "rb").read()
    n, = struct.unpack_from("<Q", blob)
    header, weight_map = json.loads(blob[8:8 + n]), {}
    header.pop("__metadata__", None)
    for k in range(2):
        name, part, data = "model-%05d-of-00002.safetensors" % (k + 1), {}, b""
        for t in sorted(header)[k::2]:
            a, b = header[t]["data_offsets"]
            part[t] = dict(header[t], data_offsets=[len(data), len(data) + b - a])
            data += blob[8 + n + a:8 + n + b]
            weight_map[t] = name
        text = json.dumps(part).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(out, name), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)
    json.dump({"metadata": {"total_size": len(blob) - 8 - n}, "weight_map": weight_map}, open(os.path.join(out, "model.safetensors.index.json"), "w"))


def tool(build, argv, cwd):
    done = subprocess.run([os.path.join(build, argv[0])] + argv[1:], cwd=cwd, capture_output=True)
    if done.returncode:
        raise SystemExit("%s: exit %d: %s" % (" ".join(argv), done.returncode, done.stderr.decode("utf-8", "replace")))


class Models:
    """folders, ggufs, aprs: lists of (name, path, has a tokenizer, golden file or None)."""

    def __init__(self, build, data, work):
        self.folders, self.ggufs, self.aprs = [], [], []
        os.makedirs(work)
        micro(os.path.join(work, "micro"), data)
        self.add(build, work, "micro", True, None)
        for family in sorted(os.listdir(os.path.join(data, "families"))):
            source = os.path.join(data, "families", family)
            if os.path.isdir(source):
                tool(build, ["make_family", source, family], work)
                self.add(build, work, family, False, os.path.join(source, "golden.safetensors"))
        for to in ("q4_k_m", "q8_0", "mxfp4"):
            for of in ("micro", "qwen3_moe", "llama"):
                name = "%s-%s" % (of, to)
                tool(build, ["aprquant", "-q", "--to", to, of, name + ".gguf"], work)
                self.ggufs.append((name, os.path.join(work, name + ".gguf"), of == "micro", None))
        tool(build, ["aprquant", "-q", "--to", "fp8", "llama", "llama-fp8"], work)
        self.folders.append(("llama-fp8", os.path.join(work, "llama-fp8"), False, None))
        shards(os.path.join(work, "llama"), os.path.join(work, "llama-shards"))
        self.folders.append(("llama-shards", os.path.join(work, "llama-shards"), False, None))
        for kind in sorted(os.listdir(os.path.join(data, "packed"))):
            source = os.path.join(data, "packed", kind)
            if os.path.exists(os.path.join(source, "model.safetensors")):
                self.folders.append((kind, source, False, None))
        for kind in ("ministral3", "mixtral"):
            self.folders.append((kind + "-params", os.path.join(data, "containers", kind), False, None))

    def add(self, build, work, name, has_words, golden):
        folder = os.path.join(work, name)
        self.folders.append((name, folder, has_words, golden))
        for ending, kind in ((".gguf", self.ggufs), (".apr", self.aprs)):
            tool(build, ["aprconv", "convert", "-q", name, name + ending], work)
            kind.append((name, os.path.join(work, name + ending), has_words, golden))
        if name in ("micro", "llama", "qwen3_moe", "granitemoehybrid"):  # an APR whose origin is a GGUF
            tool(build, ["aprconv", "convert", "-q", name + ".gguf", name + "-g.apr"], work)
            self.aprs.append((name + "-g", os.path.join(work, name + "-g.apr"), has_words, golden))
