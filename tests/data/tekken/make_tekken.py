#!/usr/bin/env python3
"""make_tekken.py TEXT OUT - OUT/tekken.json, trained on a text as Mistral's are, and OUT/ids.json: what mistral-common makes of sentences."""
import base64
import collections
import json
import sys

import regex
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
           r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
N_SPECIAL, N_RANKS, N_KEPT = 20, 700, 640  # more are in the file than the model has

text, out = sys.argv[1:]
words = collections.Counter(regex.findall(PATTERN, open(text, encoding="utf-8").read()[:60000] + " naïve café Ünïcödé 日本語 日本 " * 20))
parts = {w: [bytes([b]) for b in w.encode()] for w in words}
ranks = [bytes([b]) for b in range(256)]
while len(ranks) < N_RANKS:
    pairs = collections.Counter()
    for w, n in words.items():
        for a, b in zip(parts[w], parts[w][1:]):
            pairs[a + b] += n
    joined = next(t for t, _ in sorted(pairs.items(), key=lambda x: (-x[1], x[0])) if t not in ranks)
    ranks.append(joined)
    for w, p in parts.items():
        i = 0
        while i + 1 < len(p):
            if p[i] + p[i + 1] == joined:
                p[i:i + 2] = [joined]
            i += 1
ranks[650:650] = [b"a word of its own"]  # beyond the size
ranks[600] = b" Methuselah"  # a word that no two tokens make

specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>"]
json.dump({
    "config": {"pattern": PATTERN, "num_vocab_tokens": len(ranks), "default_vocab_size": N_KEPT + N_SPECIAL,
               "default_num_special_tokens": N_SPECIAL, "version": "v7"},
    "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": t.decode(errors="ignore") or None} for i, t in enumerate(ranks)],
    "special_tokens": [{"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(specials)]
    + [{"rank": i, "token_str": f"<SPECIAL_{i}>", "is_control": True} for i in range(len(specials), N_SPECIAL)],
}, open(out + "/tekken.json", "w"), separators=(",", ":"))

sentences = ["In the beginning God created the heaven and the earth.", "", " ", "  two  spaces\n\nand lines\r\n", "MethuselahX and Methuselah and methuselah",
             "naïve café Ünïcödé", "日本語 日本 日", "1234567 89", "it's 12 o'clock/now //", "\t\ttabs", "🙂 \u0001", "AbCdE fGhI", "a a  a   a",
             "And all the days of Methuselah were nine hundred sixty and nine years: and he died."]
tokenizer = Tekkenizer.from_file(out + "/tekken.json")
json.dump([{"text": s, "ids": tokenizer.encode(s, bos=True, eos=False)} for s in sentences], open(out + "/ids.json", "w"), indent=0)
