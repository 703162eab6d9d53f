#!/usr/bin/env python3
"""usage: mmproj.py LLAMA_CPP BUILD DATA - records what llama.cpp's converter writes with --mmproj: DATA/mmproj/NAME.txt (DATA: tests/data).

A listing has a line for each key (name, type, value; floats as f32) and each tensor (name, type, dimensions as in the file, CRC-32 of its
bytes), for --outtype f32, f16 and bf16. general.name and general.size_label are left out: the converter makes them from the folder's name.
tests/convert/test_mmproj.c compares what we write. Needs torch, and gguf-py of the same checkout.

The converter knows numbered names ("mm.2") only up to the number of layers, and these towers have two: it gets a table for more. It also
expects Gemma's tower under the names of the hub, which transformers 5 writes without "vision_model."."""
import json, os, struct, subprocess, sys, tempfile, zlib

LLAMA, BUILD, DATA = (os.path.abspath(path) for path in sys.argv[1:4])
sys.path.insert(0, os.path.join(LLAMA, "gguf-py"))
import gguf

CONVERTER = """
import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
import gguf
table = gguf.get_tensor_name_map
gguf.get_tensor_name_map = lambda arch, n: table(arch, max(n, 4))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
FOLDERS = ["multimodal/qwen2_vl", "multimodal/qwen2_5_vl", "multimodal/qwen3_vl", "mmproj/gemma3", "mmproj/mistral3"]


def rename(path, old, new):
    with open(path, "rb") as file:
        n = struct.unpack("<Q", file.read(8))[0]
        head, data = json.loads(file.read(n)), file.read()
    text = json.dumps({name.replace(old, new, 1) if name.startswith(old) else name: value for name, value in head.items()}).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def text_of(field):
    def one(value):
        return f"{float(value):.9g}" if isinstance(value, float) else str(int(value)) if isinstance(value, bool) else str(value)
    kind, value = field.types[-1].name.lower().replace("uint", "u").replace("float", "f"), field.contents()
    return f"{kind} " + (",".join(map(one, value)) if isinstance(value, list) else one(value))


def listing(path):
    reader = gguf.GGUFReader(path)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.name", "general.size_label"):
            yield f"{name} {text_of(field)}"
    for t in reader.tensors:
        yield f"{t.name} {t.tensor_type.name.lower()} {','.join(str(n) for n in t.shape)} {zlib.crc32(t.data.tobytes()):08x}"


for folder in FOLDERS:
    name = os.path.basename(folder)
    with tempfile.TemporaryDirectory() as work, open(f"{DATA}/mmproj/{name}.txt", "w", encoding="utf-8") as out:
        model = f"{work}/{name}"
        subprocess.run([f"{BUILD}/make_family", f"{DATA}/{folder}", model], check=True)
        for part in ("embeddings.", "encoder.", "post_", "head.") if name == "gemma3" else ():
            rename(f"{model}/model.safetensors", f"vision_tower.{part}", f"vision_tower.vision_model.{part}")
        for path, text in (("preprocessor_config.json", open(f"{DATA}/mmproj/preprocessor_config.json", encoding="utf-8").read()),
                           ("tokenizer_config.json", '{"added_tokens_decoder": {"12": {"content": "[IMG_BREAK]"}}}')):
            with open(f"{model}/{path}", "w", encoding="utf-8") as file:
                file.write(text)
        for outtype in ("f32", "f16", "bf16"):
            command = [sys.executable, "-c", CONVERTER, LLAMA, f"{LLAMA}/convert_hf_to_gguf.py", model, "--mmproj", "--outtype", outtype,
                       "--outfile", f"{work}/out.gguf"]
            subprocess.run(command, check=True, capture_output=True)
            print(f"== {outtype}", *listing(f"{work}/out.gguf"), sep="\n", file=out)
