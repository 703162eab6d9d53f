"""GGUF, safetensors and APR files as lists that can be changed and written again; offsets and checksums follow unless a mutant sets them."""
import json, struct, zlib

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


class Pairs(list):
    """A JSON object whose keys may repeat: a list of [key, value]."""


class Raw(str):
    """Text that stands in the JSON as it is."""


def load_json(text):
    return json.loads(text, object_pairs_hook=lambda pairs: Pairs([list(p) for p in pairs]))


def dump_json(value):
    """The bytes of a value; surrogates in strings become bytes that are not UTF-8."""
    return _dump(value).encode("utf-8", "surrogateescape")


def _dump(value):
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs) and all(isinstance(p, list) and len(p) == 2 for p in value):
        return "{" + ",".join(_dump(k) + ":" + _dump(v) for k, v in value) + "}"
    if isinstance(value, dict):
        return "{" + ",".join(_dump(k) + ":" + _dump(v) for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_dump(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


class Gguf:
    """version, kv = [[key bytes, type, value]], tensors = [{name, dims, type, offset, data}]. A value of an array is (type, [values])."""

    def __init__(self, blob):
        self.blob, self.at = blob, 4
        self.magic, self.version = blob[:4], self.scalar(4)
        n_tensors, n_kv = self.scalar(10), self.scalar(10)
        self.kv = []
        for _ in range(n_kv):
            key = self.string()
            kind = self.scalar(4)
            self.kv.append([key, kind, self.value(kind)])
        self.tensors = []
        for _ in range(n_tensors):
            name = self.string()
            dims = [self.scalar(10) for _ in range(self.scalar(4))]
            self.tensors.append({"name": name, "dims": dims, "type": self.scalar(4), "offset": self.scalar(10)})
        self.alignment = next((v for k, _, v in self.kv if k == b"general.alignment"), 32)
        start = -(-self.at // self.alignment) * self.alignment
        ends = sorted([t["offset"] for t in self.tensors] + [len(blob) - start])
        for t in self.tensors:
            end = next((e for e in ends if e > t["offset"]), len(blob) - start)
            t["data"] = blob[start + t["offset"]:start + end]
        self.counts = None  # (n_tensors, n_kv) that the header says, if not what there is
        self.tail = b""
        self.follow = True  # offsets follow from the order of the data

    def scalar(self, kind):
        value, = struct.unpack_from(SCALARS[kind], self.blob, self.at)
        self.at += struct.calcsize(SCALARS[kind])
        return value

    def string(self):
        n = self.scalar(10)
        self.at += n
        return self.blob[self.at - n:self.at]

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of, n = self.scalar(4), self.scalar(10)
            return of, [self.value(of) for _ in range(n)]
        return self.scalar(kind)

    @staticmethod
    def pack_string(text):
        return struct.pack("<Q", len(text)) + text

    @classmethod
    def pack(cls, kind, value):
        if isinstance(value, Raw):
            return value.encode("latin-1")
        if kind == STRING:
            return cls.pack_string(value)
        if kind == ARRAY:
            of, items = value
            return struct.pack("<IQ", of, len(items)) + b"".join(cls.pack(of, v) for v in items)
        if kind not in SCALARS:
            return struct.pack("<Q", int(value) & (2**64 - 1)) if isinstance(value, (int, float)) and value == value and abs(value) < 1e300 else bytes(8)
        form = SCALARS[kind]
        if form in ("<f", "<d"):
            try:
                return struct.pack(form, float(value))
            except OverflowError:
                return struct.pack(form, float("inf"))
        n = struct.calcsize(form)
        if not isinstance(value, (int, float)) or value != value or abs(value) > 1e300:
            return bytes(n)
        return (int(value) & (2 ** (8 * n) - 1)).to_bytes(n, "little")

    def write(self):
        if self.follow:
            order = self.data_order if hasattr(self, "data_order") else list(range(len(self.tensors)))
            at, data = 0, b""
            for i in order:
                t = self.tensors[i]
                t["offset"] = at
                body = t["data"] + b"\0" * (-len(t["data"]) % self.alignment)
                data += body
                at += len(body)
        else:
            data = b""
            for t in sorted(self.tensors, key=lambda t: t["offset"]):
                if t["offset"] < 1 << 26:
                    data = data.ljust(t["offset"], b"\0")[:t["offset"]] + t["data"]
        n_tensors, n_kv = self.counts or (len(self.tensors), len(self.kv))
        head = self.magic + struct.pack("<IQQ", self.version, n_tensors, n_kv)
        for key, kind, value in self.kv:
            head += self.pack_string(key) + struct.pack("<I", kind) + self.pack(kind, value)
        for t in self.tensors:
            head += self.pack_string(t["name"]) + struct.pack("<I", len(t["dims"]))
            head += b"".join(struct.pack("<Q", d & (2**64 - 1)) for d in t["dims"]) + struct.pack("<IQ", t["type"] & 0xffffffff, t["offset"] & (2**64 - 1))
        return head + b"\0" * (-len(head) % self.alignment) + data + self.tail


class Safetensors:
    """header: Pairs; data: bytes after it."""

    def __init__(self, blob):
        n, = struct.unpack_from("<Q", blob)
        self.header = load_json(blob[8:8 + n].decode())
        self.data, self.length, self.pad = blob[8 + n:], None, 8

    def tensors(self):
        return [p for p in self.header if p[0] != "__metadata__" and isinstance(p[1], Pairs)]

    def write(self):
        text = dump_json(self.header)
        text += b" " * (-len(text) % self.pad if isinstance(self.pad, int) else 0)
        if isinstance(self.pad, tuple):  # so many bytes modulo so many
            text += b" " * ((self.pad[0] - len(text)) % self.pad[1])
        return struct.pack("<Q", len(text) if self.length is None else self.length) + text + self.data


class Apr:
    """head fields, meta (bytes or Pairs), index = [{name, dtype, dims, offset, data}]; CRCs follow unless told."""

    def __init__(self, blob):
        self.flags, n, mo, ms, io, do = struct.unpack_from("<HIQIQQ", blob, 6)
        self.meta = load_json(blob[mo:mo + ms].decode())
        self.index, at = [], io
        for _ in range(n):
            size, = struct.unpack_from("<H", blob, at)
            name = blob[at + 2:at + 2 + size]
            dtype, rank = blob[at + 2 + size], blob[at + 3 + size]
            at += 4 + size
            dims = list(struct.unpack_from("<%dQ" % rank, blob, at))
            offset, length = struct.unpack_from("<QQ", blob, at + 8 * rank)
            at += 8 * rank + 16
            self.index.append({"name": name, "dtype": dtype, "dims": dims, "data": blob[do + offset:do + offset + length]})
        self.fix_crcs, self.patches, self.footer = True, {}, True

    def write(self):
        pad = lambda b: b + b"\0" * (-len(b) % 64)
        data, at = b"", 0
        for t in self.index:
            t["at"] = t.get("offset", len(data))
            data += pad(t["data"])
        if self.fix_crcs and isinstance(self.meta, Pairs):
            for key, kit in self.meta:
                if key == "aprkit" and isinstance(kit, Pairs):
                    for p in kit:
                        if p[0] == "crc32" and isinstance(p[1], str):
                            p[1] = "".join("%08x" % zlib.crc32(t["data"]) for t in self.index)
        meta = self.meta if isinstance(self.meta, bytes) else dump_json(self.meta)
        index = b""
        for t in self.index:
            index += struct.pack("<H", len(t["name"])) + t["name"] + bytes([t["dtype"] & 255, len(t["dims"])])
            index += b"".join(struct.pack("<Q", d & (2**64 - 1)) for d in t["dims"])
            index += struct.pack("<QQ", t["at"] & (2**64 - 1), t.get("size", len(t["data"])) & (2**64 - 1))
        head = bytearray(64)
        head[:6] = b"APR\0\2\0"
        io = 64 + len(pad(meta))
        struct.pack_into("<HIQIQQ", head, 6, self.flags, len(self.index), 64, len(meta), io, io + len(pad(index)))
        for where, what in self.patches.items():
            head[where:where + len(what)] = what
        struct.pack_into("<I", head, 40, zlib.crc32(bytes(head[:40]) + bytes(head[44:64])))
        blob = bytes(head) + pad(meta) + pad(index) + data
        return blob + struct.pack("<I", zlib.crc32(blob)) if self.footer else blob
