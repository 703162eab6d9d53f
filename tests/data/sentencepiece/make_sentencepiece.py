#!/usr/bin/env python3
"""make_sentencepiece.py TEXT OUT - OUT/tokenizer.model, trained on a text as Llama 2's is, and OUT/texts.json: what sentencepiece makes of sentences."""
import json
import sys

import sentencepiece as spm

text, out = sys.argv[1:]
open("/tmp/train.txt", "w").write(open(text, encoding="utf-8").read()[:60000])
spm.SentencePieceTrainer.train(
    input="/tmp/train.txt", model_prefix="/tmp/tokenizer", vocab_size=500, model_type="bpe", byte_fallback=True, split_digits=True,
    normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, user_defined_symbols=["<tool>"],
    unk_surface=" \u2047 ", minloglevel=2)
open(out + "/tokenizer.model", "wb").write(open("/tmp/tokenizer.model", "rb").read())
sentences = ["In the beginning God created the heaven and the earth.", "", " ", "a  b   c    d", "tabs\tand\nnewlines\n\n", "café 😀 中文",
             "12345 don't WE'LL", "trailing ", "▁mark", "and them that had gotten the victory over the beast"]
model = spm.SentencePieceProcessor(model_file=out + "/tokenizer.model")
json.dump([{"text": s, "ids": [1] + model.encode(s)} for s in sentences], open(out + "/texts.json", "w"), indent=0)
