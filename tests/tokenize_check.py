#!/usr/bin/env python3
"""tokenize_check.py BUILD [-n STRINGS] [FOLDER...] - holds `aprrun tokenize` and `detokenize` against Hugging Face's `tokenizers`.

For each style of the bundled tokenizers, and for each FOLDER with a tokenizer.json: random strings are tokenized, the ids must be those of
`tokenizers`, and detokenize must give the strings back. Run by hand, where `tokenizers` is installed. Strings are joined by a control
token, which cuts a text before anything else does, so that one process takes two hundred of them; a hundred are tokenized one by one.
A style whose normalizer changes a text (NFC) is given texts that it leaves alone for the way back. Where SentencePiece puts a space after
each added token, the way back is held against the text or against what `tokenizers` decodes.
"""
import argparse
import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers

DATA = pathlib.Path(__file__).resolve().parent / "data"
TOGETHER, ALONE = 200, 100
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFXYZ'.,;:!?-()[]{}<>|", "0123456789", " ", "\n\t\r ", "éüñßçøåÅÉÑ", "абвгджзиклмн", "αβγδεζηθ",
    "中文测试日本語のテスト", "한국어테스트", "שלוםعربي", "😀🎉👩‍👩‍👧🇩🇪", "\u0301\u0308\u200d\ufeff\u00a0\u3000", "½²ⅣⒶﬁ", "'s't're've'll'd",
    "\u0000\u0001\u001b\u007f", "नमस्ते",
]
WORDS = "the In and of God beginning that unto heaven earth don't I'm they've WE'LL 1234567 3.14 a_b foo(bar) http://x.y/z?q=1 --flag".split()


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 8)):
        if rng.random() < 0.4:
            parts.append(rng.choice(WORDS))
        else:
            alphabet = rng.choice(ALPHABETS)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 6))))
        if rng.random() < 0.5:
            parts.append(" " * rng.randint(1, 3))
    return "".join(parts)


def bpe_styles(base):
    """tiny-qwen2's vocabulary after each series of splitting steps that the tests know."""
    yield "tiny-qwen2", base
    sets = json.loads((DATA / "tokenizer/splits.json").read_text())["sets"]
    behaviors = {"isolated": "Isolated", "removed": "Removed", "merged_with_previous": "MergedWithPrevious",
                 "merged_with_next": "MergedWithNext", "contiguous": "Contiguous"}
    for one in sets:
        steps = []
        for line in one["splits"]:
            how, pattern = line.split(" ", 1)
            words = how.split(",")
            if words[0] not in behaviors or set(words[1:]) - {"inverted"}:
                break
            steps.append({"type": "Split", "pattern": {"Regex": pattern}, "behavior": behaviors[words[0]], "invert": "inverted" in words})
        else:
            made = copy.deepcopy(base)
            made["normalizer"] = None
            steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False})
            made["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
            yield "bpe, " + one["name"], made


def spm_styles():
    """The pieces of the SentencePiece model of the tests, as `tokenizers` has them: spaces by a normalizer, or by Metaspace."""
    spm = json.loads((DATA / "tokenizer/spm.json").read_text())
    model = {"type": "BPE", "vocab": {p: i for i, p in enumerate(spm["pieces"])}, "merges": spm["hf_merges"], "byte_fallback": True,
             "unk_token": "<unk>", "fuse_unk": True}
    added = [{"id": i, "content": spm["pieces"][i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i in (0, 1, 2)]
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    decoder = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    base = {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "model": model}
    yield "spm, a space before it", dict(base, normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]},
                                       decoder={"type": "Sequence", "decoders": decoder + strip})
    yield "spm, no space before it", dict(base, normalizer=replace, decoder={"type": "Sequence", "decoders": decoder})


class Style:
    def __init__(self, build, name, folder, file):
        self.file = file
        self.aprrun, self.name, self.folder = str(build / "aprrun"), name, str(folder)
        self.hf = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        raw = json.loads((folder / "tokenizer.json").read_text())
        plain = [t for t in raw.get("added_tokens", []) if t["special"] and not (t["lstrip"] or t["rstrip"] or t["single_word"])]
        self.mark = plain[-1]["content"]
        self.nfc = "NFC" in json.dumps(raw.get("normalizer"))
        self.removes = "Removed" in json.dumps(raw.get("pre_tokenizer"))

    def run(self, *arguments, text=b""):
        done = subprocess.run([self.aprrun, *arguments], input=text, capture_output=True)
        if done.returncode != 0:
            sys.exit(f"{self.name}: {arguments}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def check(self, text):
        """How many of (ids, way back) are wrong."""
        self.file.write_bytes(text.encode())
        ids = self.run("tokenize", self.folder, "--ids", "--no-special", "-f", str(self.file))
        wanted = self.hf.encode(text, add_special_tokens=False).ids
        wrong = [int(x) for x in ids.split()] != wanted
        back = self.run("detokenize", self.folder, "--no-special", text=ids)
        lost = back != text.encode() + b"\n"
        if lost and self.mark in text:
            lost = back != self.hf.decode(wanted, skip_special_tokens=False).encode() + b"\n"
        return wrong, lost and not self.removes


def report(style, n, rng):
    texts = [random_text(rng) for _ in range(n)]
    if style.nfc:
        texts = [unicodedata.normalize("NFC", t) for t in texts]
    groups = [[t] for t in texts[:ALONE]] + [texts[i : i + TOGETHER] for i in range(ALONE, n, TOGETHER)]
    wrong = lost = 0
    for group in groups:
        joined = style.mark.join(group)
        if style.nfc and unicodedata.normalize("NFC", joined) != joined:
            joined = style.mark.join(t for t in group if not unicodedata.combining(t[0]))
        a, b = style.check(joined)
        if (a or b) and wrong + lost == 0:
            print(f"  first of {style.name}: ids differ {a}, way back differs {b}: {joined[:200]!r}")
        wrong, lost = wrong + a, lost + b
    print(f"{style.name:40} {n:6} strings in {len(groups)} texts: ids differ {wrong}, way back differs {lost}"
          f"{' (not counted: it removes text)' if style.removes else ''}", flush=True)
    return wrong + lost


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folders", type=pathlib.Path, nargs="*")
    parser.add_argument("-n", type=int, default=20000)
    parser.add_argument("--only", default="", help="styles whose name has this text")
    asked = parser.parse_intermixed_args()
    n_bad = 0
    with tempfile.TemporaryDirectory() as work:
        base = json.loads((DATA / "tiny-qwen2/tokenizer.json").read_text())
        made = list(bpe_styles(base)) + list(spm_styles())
        folders = [(str(f), f) for f in asked.folders]
        for i, (name, tokenizer) in enumerate(made):
            folder = pathlib.Path(work) / str(i)
            folder.mkdir()
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
            folders.append((name, folder))
        for name, folder in folders:
            if asked.only in name:
                n_bad += report(Style(asked.build.resolve(), name, folder, pathlib.Path(work) / "text"), asked.n, random.Random(name))
    sys.exit(1 if n_bad else 0)


main()
