#!/usr/bin/env python3
"""codebook_errors.py LIBGGML_BASE.so > codebook_errors.txt - errors of ggml's encoders of the codebook types.

The rows are those of tests/kernels/test_iq_encode.c: SplitMix64, sums of uniform values, and operations that IEEE 754 rounds exactly.
An error is the sum of w * (x - y)^2 over the sum of w * x^2. Without importance w is 1; ggml then weighs by x^2 inside, and types that
it does not write without an importance matrix get one of ones.
"""
import ctypes
import sys

import gguf
import numpy as np

ROWS, COLUMNS = 20, 1024
TYPES = ["iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_s", "iq1_m"]


class Random:
    def __init__(self, seed):
        self.state = np.uint64(seed)

    def uniform(self, n):
        with np.errstate(over="ignore"):
            z = self.state + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            self.state = z[-1]
            z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
            z = z ^ z >> np.uint64(31)
        return (z >> np.uint64(40)).astype(np.float64) * 2.0**-24

    def bells(self, n, each):
        """[n, each] sums of twelve, in the order in which they are drawn."""
        u = self.uniform(n * each * 12).reshape(n, each, 12)
        total = np.full((n, each), -6.0)
        for i in range(12):
            total = total + u[:, :, i]
        return total

    def student(self, n):
        b = self.bells(n, 6)
        total = np.zeros(n)
        for i in range(1, 6):
            total = total + b[:, i] * b[:, i]
        return b[:, 0] / np.sqrt(total / 5.0)


def rows(has_tails):
    random = Random(int(has_tails))
    n = ROWS * COLUMNS
    x = random.student(n) if has_tails else random.bells(n, 1)[:, 0]
    u = 2.0 * random.uniform(COLUMNS)
    return (0.02 * x).astype(np.float32), (u * u * (u * u)).astype(np.float32)


def main():
    ggml = ctypes.CDLL(sys.argv[1])
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
    floats = ctypes.POINTER(ctypes.c_float)
    print("# relative squared errors of ggml's encoders: codebook_errors.py")
    for name in TYPES:
        number = gguf.GGMLQuantizationType[name.upper()]
        for has_tails in (False, True):
            x, importance = rows(has_tails)
            for by_importance in (False, True):
                w = importance if by_importance else np.ones(COLUMNS, np.float32)
                given = by_importance or ggml.ggml_quantize_requires_imatrix(int(number))
                out = np.zeros(x.size * 4, np.uint8)
                size = ggml.ggml_quantize_chunk(
                    int(number), x.ctypes.data_as(floats), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0),
                    ctypes.c_int64(ROWS), ctypes.c_int64(COLUMNS), w.ctypes.data_as(floats) if given else None)
                y = gguf.quants.dequantize(out[:size].reshape(ROWS, -1), number).astype(np.float64)
                x64 = x.astype(np.float64).reshape(ROWS, COLUMNS)
                error = (w * (x64 - y) ** 2).sum() / (w * x64**2).sum()
                print(name, "student" if has_tails else "bell", "importance" if by_importance else "plain", f"{error:.6f}")


main()
