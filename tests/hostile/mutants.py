"""What a mutant does to a file: each function changes one thing and says what in a few words."""
import copy, random, struct
from .containers import *

LONG = "k" * 70000
STRINGS = ["", "x", "a" * 255, LONG, "\x1b[31m", "a\nb", "\x00", "\udcff\udcfe", "../../etc/passwd", "/etc/passwd", "é", "\u202e", "%s%n", "model.embed_tokens.weight", "llama", "qwen3_moe", "gemma3_text", "mamba", "yarn", "linear",
           "silu", "gelu", "float16", "bfloat16", "BPE", "Unigram", "WordPiece", "<s>", " ", "sliding_attention", "full_attention", "linear_attention", "fp8", "gptq", "awq", "compressed-tensors", "nan", "1e999", "-1", "0"]
NUMBERS = [0, -1, 1, 2, 3, 7, 31, 32, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -2**31, -2**63, 0.5, -0.0, 1e-320, 1e38, 1e39, 1e308]
RAWS = [Raw(s) for s in ("1e400", "NaN", "-Infinity", "Infinity", "-0", "1.0", "01", "0x10", "1e-400", "123456789012345678901234567890", "\"\\ud800\"", "\"\\u0000\"", "\"\udcff\"", "[" * 150 + "]" * 150,
        "[" * 3000 + "]" * 3000, "{\"a\":" * 90 + "1" + "}" * 90, "\"unfinished", "tru", "")]
OTHERS = [None, True, False, [], Pairs(), [1], [[]], [None], [""], [0, 0], Pairs([["type", None]])]


def any_value(r):
    return r.choice([r.choice(STRINGS), r.choice(NUMBERS), r.choice(RAWS), r.choice(OTHERS)])


def near_number(r, v):
    return r.choice([v + 1, v - 1, v * 2, v // 2 if isinstance(v, int) else v / 2, -v, v * 1000, v * 3, 0, 1, r.choice(NUMBERS)])


# ---- JSON ----

def places(value, found=None, depth=0, most=60):
    """Every (container, index) of a document; of long lists only some."""
    found = [] if found is None else found
    if depth > 40:
        return found
    items = list(range(len(value))) if isinstance(value, list) else []
    if not isinstance(value, Pairs) and len(items) > most:
        items = items[:most // 2] + items[-most // 2:]
    elif len(items) > 400:
        items = items[:200] + items[-200:]
    for i in items:
        found.append((value, i))
        places(value[i][1] if isinstance(value, Pairs) else value[i], found, depth + 1, most)
    return found


def mutate_json(r, root, donors=()):
    """One change somewhere in a document; donors are other documents of the same kind, whose keys may come in."""
    at = places(root)
    if not at or r.random() < 0.02:
        root[:] = []
        return "everything removed"
    if donors and r.random() < 0.25 and isinstance(root, Pairs):
        pair = copy.deepcopy(r.choice(r.choice(donors)))
        have = [p for p in root if p[0] == pair[0]]
        if have:
            have[0][1] = pair[1]
        else:
            root.append(list(pair))
        return "%s = that of another" % pair[0]
    box, i = r.choice(at)
    name = repr(box[i][0] if isinstance(box, Pairs) else i)[:40]
    old = box[i][1] if isinstance(box, Pairs) else box[i]

    def put(v):
        if isinstance(box, Pairs):
            box[i][1] = v
        else:
            box[i] = v
        return "%s = %s" % (name, repr(v)[:60])
    what = r.random()
    if what < 0.35 and isinstance(old, (int, float)) and not isinstance(old, bool):
        return put(near_number(r, old))
    if what < 0.55:
        return put(any_value(r))
    if what < 0.65:
        del box[i]
        return "%s removed" % name
    if what < 0.72:
        box.insert(r.randrange(len(box) + 1), [box[i][0], any_value(r)] if isinstance(box, Pairs) else box[i])
        return "%s twice" % name
    if what < 0.79 and isinstance(box, Pairs):
        box[i][0] = r.choice([r.choice(STRINGS), box[i][0] + "x", box[i][0][:-1], box[i][0].upper(), r.choice(box)[0]])
        return "%s renamed %s" % (name, box[i][0][:40])
    if what < 0.86 and isinstance(old, list) and not isinstance(old, Pairs) and old:
        k = r.randrange(6)
        if k == 0: old.reverse()
        elif k == 1: r.shuffle(old)
        elif k == 2: del old[len(old) // 2:]
        elif k == 3: old.extend(old[:50])
        elif k == 4: old.append(any_value(r))
        else: old[r.randrange(len(old))] = any_value(r)
        return "%s rearranged %d" % (name, k)
    if what < 0.93 and len(at) > 1:
        other, j = r.choice(at)
        return put(other[j][1] if isinstance(other, Pairs) else other[j]) if not holds(other[j], box) else put(0)
    return put(r.choice([[old], Pairs([["a", old]]), str(old)]))


def holds(value, box, depth=0):
    """Would value inside box make a circle?"""
    if value is box or depth > 60:
        return True
    return isinstance(value, list) and any(holds(v, box, depth + 1) for v in value[:500])


def mutate_text(r, blob):
    """A change of bytes that knows nothing of what they mean."""
    blob = bytearray(blob)
    k = r.randrange(7)
    if not blob: k = 3
    if k == 0:
        for _ in range(r.choice([1, 1, 2, 8])):
            blob[r.randrange(len(blob))] ^= 1 << r.randrange(8)
    elif k == 1: del blob[r.randrange(len(blob)):]
    elif k == 2:
        i = r.randrange(len(blob)); del blob[i:i + r.choice([1, 2, 4, 8, 100])]
    elif k == 3:
        i = r.randrange(len(blob) + 1); blob[i:i] = r.choice([b"\0", b"\xff", b"{}", b"\xef\xbb\xbf", b" " * 1000, b"\n", b"]", b"\x80\x02"])
    elif k == 4: blob[:] = b""
    elif k == 5: blob[:0] = b"\xef\xbb\xbf"
    else: blob += r.choice([b"\0", b"\n", b"x", b"}", bytes(64), blob[:100]])
    return bytes(blob), ["bits", "cut", "bytes removed", "bytes put in", "empty", "BOM", "more after"][k]


# ---- values ----

FLOATS32 = [float("nan"), float("inf"), float("-inf"), 1e-45, -0.0, 3.4e38, 65505.0, 1e-8, 448.5, -1.0, 1.0]


def mutate_data(r, data, width):
    data = bytearray(data)
    if len(data) < 4:
        return bytes(data), "too small"
    k = r.randrange(4)
    n = r.choice([1, 1, 3, 40])
    for _ in range(n):
        i = r.randrange(len(data))
        if k == 0: data[i] = r.randrange(256)
        elif k == 1: i -= i % 4; data[i:i + 4] = struct.pack("<f", r.choice(FLOATS32))[:len(data) - i]
        elif k == 2: i -= i % 2; data[i:i + 2] = r.choice([b"\xff\x7f", b"\x00\x7c", b"\x80\x7f", b"\x01\x00", b"\x00\x80", b"\xff\xff", b"\x7f\x7f"])[:len(data) - i]
        else: data[i:i + 32] = bytes([r.choice([0, 255, 0x7f, 0x80])]) * min(32, len(data) - i)
    return bytes(data), "values %d" % k


# ---- GGUF ----

def gguf_kv(r, g, donors):
    k = r.randrange(10)
    if not g.kv or k == 0:
        donor = r.choice(donors)
        key = r.choice(donor.kv)
        have = [p for p in g.kv if p[0] == key[0]]
        if have: have[0][1:] = key[1:]
        else: g.kv.append(list(key))
        return "key %r of another" % key[0][:40]
    pair = r.choice(g.kv)
    name = repr(pair[0][:48])
    if k == 1: g.kv.remove(pair); return "key %s removed" % name
    if k == 2: g.kv.insert(r.randrange(len(g.kv) + 1), [pair[0], pair[1], pair[2]]); return "key %s twice" % name
    if k == 3:
        pair[0] = r.choice([b"", b"x", pair[0] + b"x", pair[0].upper(), b"a" * 65536, b"\xff\xfe", b"\x1b[2J", b"a\0b", b"general.architecture", b"general.alignment", b"split.count", r.choice(g.kv)[0]])
        return "key %s renamed %r" % (name, pair[0][:30])
    if k == 4:
        pair[1] = r.choice(list(range(14)) + [255, 2**31, 2**32 - 1])
        if isinstance(pair[2], tuple): pair[2] = Raw(g.pack(ARRAY, pair[2]).decode("latin-1"))
        elif isinstance(pair[2], bytes) and pair[1] != STRING: pair[2] = Raw(pair[2].decode("latin-1"))
        elif pair[1] in (STRING, ARRAY): pair[2] = Raw(r.choice(["\0" * 12, "\1\0\0\0" + "\0" * 8, "\xff" * 12, "\4\0\0\0\2" + "\0" * 15]))
        return "key %s has type %d" % (name, pair[1])
    if k == 5 and r.random() < 0.4: r.shuffle(g.kv); return "keys shuffled"
    if isinstance(pair[2], tuple):
        of, items = pair[2]
        items = list(items)
        j = r.randrange(8)
        if j == 0: items = []
        elif j == 1: items = items[:len(items) // 2]
        elif j == 2: items += items[:5]
        elif j == 3: r.shuffle(items)
        elif j == 4 and items:
            for _ in range(r.choice([1, 5])): items[r.randrange(len(items))] = r.choice([b"", b"\xff", b"a\nb", b"x" * 70000, b"\x1b[0m", b"<0x00>", b"<0xFF>", b"\xe2\x96\x81"]) if of == STRING else r.choice(NUMBERS) if of != ARRAY else (4, [])
        elif j == 5 and items: items[r.randrange(len(items))] = r.choice(items)
        elif j == 6: of, items = r.choice([(4, [1, 2]), (6, [float("nan")] * 3), (STRING, [b"a", b"a"]), (ARRAY, [(4, [1]), (STRING, [b"x"])]), (12, [1.0]), (7, [2, 3])])
        else: items = items[1:]
        pair[2] = (of, items)
        return "array %s %d" % (name, j)
    if pair[1] == STRING: pair[2] = r.choice(STRINGS).encode("utf-8", "surrogateescape")
    elif isinstance(pair[2], (int, float)): pair[2] = near_number(r, pair[2]) if r.random() < 0.6 else r.choice(NUMBERS + [float("nan"), float("inf")] if pair[1] in (6, 12) else NUMBERS)
    if isinstance(pair[2], float) and pair[1] not in (6, 12): pair[2] = 7
    return "key %s = %s" % (name, repr(pair[2])[:40])


def gguf_tensor(r, g, donors):
    if not g.tensors:
        return "no tensors"
    t = r.choice(g.tensors)
    name = repr(t["name"][:40])
    k = r.randrange(14)
    if k == 0:
        t["name"] = r.choice([b"", b"a" * 64, b"a" * 63, b"\xff\xfe", b"x\0y", b"\x1b[31m", r.choice(g.tensors)["name"], t["name"] + b"x", t["name"].replace(b"blk.0", b"blk.99"), b"blk.0.attn_q.bias", b"../x", b"model.embed_tokens.weight", b"rope_freqs.weight"])
        return "tensor %s renamed %r" % (name, t["name"][:40])
    if k == 1: g.tensors.remove(t); return "tensor %s removed" % name
    if k == 2: g.tensors.append(dict(t)); return "tensor %s twice" % name
    if k == 3:
        t["dims"] = r.choice([t["dims"][::-1], t["dims"] + [1], t["dims"][:-1], [], t["dims"] + [1, 1, 1], [1] + t["dims"], [d * 2 for d in t["dims"]], [0] + t["dims"][1:], t["dims"][:-1] + [0], [2**62, 4], [2**64 - 1], [2**63, 2], [2**32, 2**32], t["dims"][:-1] + [near_number(r, t["dims"][-1])] if t["dims"] else [1]])
        return "tensor %s has %s" % (name, t["dims"])
    if k == 4:
        t["type"] = r.choice(list(range(42)) + [255, 2**31, 2**32 - 1]); return "tensor %s has type %d" % (name, t["type"])
    if k == 5:
        g.follow = False
        t["offset"] = r.choice([0, 1, 31, 32, 64, 2**31, 2**63, 2**64 - 32, t["offset"] + 32, max(0, t["offset"] - 32), t["offset"] + 4096, r.choice(g.tensors)["offset"]])
        return "tensor %s at %d" % (name, t["offset"])
    if k in (6, 7, 8): t["data"], what = mutate_data(r, t["data"], 4); return "tensor %s %s" % (name, what)
    if k == 9:
        g.data_order = list(range(len(g.tensors))); r.shuffle(g.data_order); return "data in another order"
    if k == 10:
        g.tensors.insert(r.randrange(len(g.tensors) + 1), r.choice([{"name": b"extra.weight", "dims": [0], "type": 0, "offset": 0, "data": b""}, {"name": b"extra.weight", "dims": [4], "type": 0, "offset": 0, "data": bytes(16)},
            {"name": b"extra.weight", "dims": [], "type": 0, "offset": 0, "data": bytes(4)}, {"name": b"v.blk.0.attn_q.weight", "dims": [8, 4], "type": 1, "offset": 0, "data": bytes(64)}, {"name": b"blk.0.extra.weight", "dims": [32, 1], "type": 8, "offset": 0, "data": bytes(34)}, {"name": b"big", "dims": [4, 1], "type": 27, "offset": 0, "data": bytes(32)}]))
        return "a tensor more"
    if k == 11: t["data"] += bytes(r.choice([32, 64, 4096])); return "a gap after %s" % name
    if k == 12:
        other = r.choice(g.tensors); t["name"], other["name"] = other["name"], t["name"]; return "names of %s and %r swapped" % (name, t["name"][:40])
    d = r.choice(r.choice(donors).tensors); g.tensors.append(dict(d)); return "tensor %r of another" % d["name"][:40]


def mutate_gguf(r, blob, donors):
    g = Gguf(blob)
    said = []
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        k = r.random()
        if k < 0.45: said.append(gguf_kv(r, g, donors))
        elif k < 0.85: said.append(gguf_tensor(r, g, donors))
        elif k < 0.88:
            g.alignment = r.choice([1, 8, 16, 64, 256, 4096])
            have = [p for p in g.kv if p[0] == b"general.alignment"]
            if have: have[0][2] = g.alignment
            else: g.kv.append([b"general.alignment", 4, g.alignment])
            said.append("alignment %d" % g.alignment)
        elif k < 0.92: g.tail = r.choice([b"x", bytes(31), bytes(4096), b"\0\0\0\0APR\0"]); said.append("tail")
        elif k < 0.94: g.version = r.choice([0, 1, 2, 4, 2**24 * 3, 2**32 - 1]); said.append("version %d" % g.version)
        elif k < 0.96: g.counts = (r.choice([0, 1, len(g.tensors) + 1, 2**31, 2**63, 2**64 - 1]), r.choice([len(g.kv), 0, len(g.kv) + 1, 2**63])); said.append("counts %s" % (g.counts,))
        else:
            blob, what = mutate_text(r, g.write()); return blob, what
    return g.write(), "; ".join(said)


# ---- safetensors ----

DTYPES = ["F32", "F16", "BF16", "F64", "I8", "U8", "I16", "I32", "I64", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64", "Q4_0", "f32", "", "U16", "U32", "U64", "F6_E2M3"]


def mutate_safetensors(r, blob, donors):
    s = Safetensors(blob)
    tensors = s.tensors()
    said = []
    for _ in range(r.choice([1, 1, 1, 2])):
        k = r.randrange(17)
        t = r.choice(tensors) if tensors else ["x", Pairs()]
        fields = dict((p[0], p) for p in t[1])
        if k in (0, 1): said.append(mutate_json(r, s.header, donors))
        elif k == 2 and "dtype" in fields: fields["dtype"][1] = r.choice(DTYPES); said.append("%s is %s" % (t[0], fields["dtype"][1]))
        elif k == 3 and "shape" in fields:
            d = fields["shape"][1]; fields["shape"][1] = r.choice([d[::-1], d + [1], [1] + d, [], [0] + d, d[:-1], [2**62, 4], [2**63], [2**64], [-1] + d, [1.0] + d, d + [1] * 9, [1] * 40]); said.append("%s is %s" % (t[0], fields["shape"][1]))
        elif k == 4 and "data_offsets" in fields:
            a, b = fields["data_offsets"][1]; fields["data_offsets"][1] = r.choice([[b, a], [a, a], [a + 1, b + 1], [0, b], [a, 2**63], [2**64 - 8, 2**64 - 4], [a, b, b], [a], [-1, b], [a + 0.5, b]]); said.append("%s at %s" % (t[0], fields["data_offsets"][1]))
        elif k == 5: t[0] = r.choice(["", "x", LONG, "a" * 300, "\x1b[31m", "\x00", "\udcff", r.choice(tensors)[0] if tensors else "y", t[0] + "x", "model." + t[0], t[0].replace("layers.0", "layers.77"), "lm_head.weight", "__metadata__", "../x", "language_model." + t[0]]); said.append("renamed %r" % t[0][:40])
        elif k == 6: s.header[:] = [p for p in s.header if p is not t]; said.append("%s removed" % t[0])
        elif k == 7: r.shuffle(s.header); said.append("header shuffled")
        elif k == 8:
            meta = Pairs([[r.choice(STRINGS), r.choice(STRINGS)] for _ in range(r.choice([1, 3, 30]))]) if r.random() < 0.7 else any_value(r)
            s.header[:] = [p for p in s.header if p[0] != "__metadata__"] + [["__metadata__", meta]]; said.append("__metadata__ %s" % repr(meta)[:60])
        elif k == 9: s.pad = r.choice([(b, 65536) for b in (640, 896, 1152, 1408, 0x504b, 0x8002)] + [1, 4, 512, 65536]); said.append("header padded to %s" % (s.pad,))
        elif k == 10: s.length = r.choice([0, 1, 7, 2**31, 2**63, 2**64 - 1, 100 * 2**20 + 1]); said.append("header says %d" % s.length)
        elif k in (11, 12, 13) and tensors and "data_offsets" in fields and len(fields["data_offsets"][1]) == 2:
            a, b = fields["data_offsets"][1]
            if isinstance(a, int) and isinstance(b, int) and 0 <= a <= b <= len(s.data):
                new, what = mutate_data(r, s.data[a:b], 4); s.data = s.data[:a] + new[:b - a].ljust(b - a, b"\0") + s.data[b:]; said.append("%s %s" % (t[0], what))
        elif k == 14: s.data = r.choice([s.data[:-1], s.data + b"\0", s.data + bytes(4096), s.data[:len(s.data) // 2], b""]); said.append("data of %d bytes" % len(s.data))
        elif k == 15:
            name, dtype, shape, size = r.choice([("extra", "F32", [0], 0), ("extra.weight", "F32", [], 4), ("extra.weight", "BF16", [3], 6), ("model.visual.x.weight", "BF16", [2, 2], 8), ("extra.bias", "I64", [1], 8), ("model.layers.0.x.weight_scale", "F32", [1], 4), ("model.layers.9.self_attn.q_proj.weight", "F16", [2, 2], 8)])
            s.header.append([name, Pairs([["dtype", dtype], ["shape", shape], ["data_offsets", [len(s.data), len(s.data) + size]]])]); s.data += bytes(size); said.append("a tensor more: %s" % name)
        else:
            out, what = mutate_text(r, s.write()); return out, what
    return s.write(), "; ".join(said)


# ---- APR ----

def mutate_apr(r, blob, donors):
    a = Apr(blob)
    said = []
    for _ in range(r.choice([1, 1, 1, 2])):
        k = r.randrange(20)
        t = r.choice(a.index) if a.index else {"name": b"x", "dims": [], "dtype": 0, "data": b""}
        if k < 5: said.append(mutate_json(r, a.meta, donors))
        elif k < 9:
            kit = next((v for n, v in a.meta if n == "aprkit" and isinstance(v, Pairs)), None)
            said.append("aprkit: " + mutate_json(r, kit if kit else a.meta))
        elif k == 9: t["dims"] = r.choice([t["dims"][::-1], t["dims"] + [1], [], [0], [2**63, 2], [1] * 9, t["dims"][:-1]]); said.append("%r is %s" % (t["name"], t["dims"]))
        elif k == 10: t["dtype"] = r.randrange(256); said.append("%r is %d" % (t["name"], t["dtype"]))
        elif k == 11: t["name"] = r.choice([b"", b"\xff", b"z" * 65535, b"\x1b[m", b"a\0b", t["name"] + b"x", r.choice(a.index)["name"] if a.index else b"q"]); said.append("renamed %r" % t["name"][:30])
        elif k == 12: t["size"] = r.choice([0, 1, 2**63, 2**64 - 1, len(t["data"]) + 64, max(0, len(t["data"]) - 4)]); said.append("%r of %d bytes" % (t["name"], t["size"]))
        elif k == 13: t["offset"] = r.choice([0, 1, 64, 2**62, 2**64 - 64]); said.append("%r at %d" % (t["name"], t["offset"]))
        elif k == 14: r.shuffle(a.index); said.append("index shuffled")
        elif k == 15: a.index = [x for x in a.index if x is not t]; said.append("%r removed" % t["name"])
        elif k == 16: a.flags = r.randrange(65536); said.append("flags %x" % a.flags)
        elif k == 17: a.patches = {r.choice([4, 5, 8, 12, 20, 24, 32]): r.choice([b"\0" * 4, b"\xff" * 4, b"\1\0\0\0", b"\xff" * 8, b"\x40" + bytes(7)])}; said.append("header %s" % a.patches)
        elif k == 18: t["data"], what = mutate_data(r, t["data"], 4); a.fix_crcs = r.random() < 0.7; said.append("%r %s" % (t["name"], what))
        else:
            out, what = mutate_text(r, a.write()); return out, what
    a.footer = r.random() > 0.05
    return a.write(), "; ".join(said)
