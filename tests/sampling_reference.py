#!/usr/bin/env python3
"""The chain of runtime/session/sample.h in numpy, for tests/data/sampling/cases.json.

Reads the logits that tests/data/tiny-qwen2/golden.safetensors records, applies penalties, top-k, top-p, min-p and temperature in this order,
and writes which tokens are left and how likely each is. tests/runtime/test_sample_chain.c draws 1,000 tokens of each case and compares.
Run by hand after a change:  tests/sampling_reference.py > tests/data/sampling/cases.json
"""
import json
import pathlib
import struct
import sys

import numpy as np

DATA = pathlib.Path(__file__).parent / "data"


def recorded(name):
    raw = (DATA / "tiny-qwen2/golden.safetensors").read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    entry = json.loads(raw[8 : 8 + n])[name]
    kind = {"F32": np.float32, "I64": np.int64}[entry["dtype"]]
    begin, end = entry["data_offsets"]
    return np.frombuffer(raw[8 + n + begin : 8 + n + end], kind).reshape(entry["shape"])


def left(logits, history, temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, repeat_penalty=1.0, presence_penalty=0.0,
         frequency_penalty=0.0, repeat_last=64):
    x = logits.astype(np.float32).copy()
    last = history if repeat_last < 0 else history[len(history) - min(repeat_last, len(history)) :]
    for token in set(last):
        x[token] = x[token] / np.float32(repeat_penalty) if x[token] > 0 else x[token] * np.float32(repeat_penalty)
        x[token] -= np.float32(last.count(token)) * np.float32(frequency_penalty) + np.float32(presence_penalty)
    ids = np.lexsort((np.arange(len(x)), -x))  # likely first, low ids first among equals
    if top_k > 0:
        ids = ids[:top_k]
    if 0 < top_p < 1:
        p = np.exp(x[ids].astype(np.float64) - float(x[ids[0]]))
        before = np.cumsum(p) - p
        ids = ids[before < top_p * p.sum()]
    if min_p > 0:
        ids = ids[np.exp(x[ids].astype(np.float64) - float(x[ids[0]])) >= min_p]
    p = np.exp((x[ids].astype(np.float64) - float(x[ids[0]])) / temperature)
    return ids, p / p.sum()


CASES = [
    {"top_k": 1}, {"top_k": 7}, {"top_k": 40, "temperature": 2.0}, {"top_k": 64, "temperature": 0.5}, {"top_k": 100, "temperature": 3.0},
    {"top_p": 0.5}, {"top_p": 0.95, "temperature": 0.7}, {"top_p": 0.9, "temperature": 3.0}, {"min_p": 0.05}, {"min_p": 0.3, "temperature": 2.0},
    {"top_k": 20, "top_p": 0.8, "temperature": 0.6}, {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    {"top_p": 0.99, "min_p": 0.02, "temperature": 1.5}, {"top_k": 30, "repeat_penalty": 1.3},
    {"top_k": 30, "repeat_penalty": 1.5, "repeat_last": 5}, {"top_k": 30, "repeat_penalty": 0.8, "repeat_last": -1},
    {"top_k": 30, "presence_penalty": 2.0}, {"top_k": 30, "frequency_penalty": 1.5, "repeat_last": -1, "temperature": 1.2},
    {"top_k": 25, "top_p": 0.9, "min_p": 0.01, "repeat_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": -0.4, "temperature": 1.1},
    {"top_k": 30, "repeat_penalty": 2.0, "repeat_last": 0},
]

logits, text = recorded("logits"), [int(i) for i in recorded("ids")]
rows = []
for number, case in enumerate(CASES):
    row = (number * 3 + 5) % len(logits)
    history = text[: row + 1] + [int(np.argmax(logits[row]))] * (number % 4)  # some penalties must change what is likeliest
    ids, p = left(logits[row], history, **case)
    rows.append({"row": row, "history": history, "options": case, "ids": ids.tolist(), "p": [round(float(v), 9) for v in p]})
sys.stdout.write("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")
