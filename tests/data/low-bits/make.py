#!/usr/bin/env python3
"""Makes rows.safetensors: rows of Student's t with 5 degrees of freedom, an importance of each value, and what ggml's encoders make of them.

    make.py LIBGGML_BASE      a shared libggml-base of llama.cpp

x [4, 1024], w [4, 1024]; of each type NAME.bytes and NAME.f32 (every weight 1) and NAME.bytes_by (weights w), as ggml_quantize_chunk and
the type's to_float make them. Made with libggml-base 0.18.1 of llama.cpp 9749, numpy and safetensors."""
import ctypes
import os
import sys

import numpy as np
from safetensors.numpy import save_file

ROWS, COLUMNS = 4, 1024
TYPES = {"q2_k": 10, "q3_k": 11, "iq4_nl": 20, "iq4_xs": 23, "tq1_0": 34, "tq2_0": 35, "nvfp4": 40, "q1_0": 41, "q2_0": 42}


class Traits(ctypes.Structure):
    _fields_ = [("type_name", ctypes.c_char_p), ("blck_size", ctypes.c_int64), ("blck_size_interleave", ctypes.c_int64),
                ("type_size", ctypes.c_size_t), ("is_quantized", ctypes.c_bool),
                ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)), ("from_float_ref", ctypes.c_void_p)]


def main():
    ggml = ctypes.CDLL(sys.argv[1])
    ggml.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    ggml.ggml_row_size.restype = ctypes.c_size_t
    ggml.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    random = np.random.default_rng(20261127)
    x = (0.02 * random.standard_t(5, (ROWS, COLUMNS))).astype(np.float32)
    w = np.exp(random.standard_normal((ROWS, COLUMNS))).astype(np.float32)
    out = {"x": x, "w": w}
    for name, number in TYPES.items():
        row_bytes = ggml.ggml_row_size(number, COLUMNS)
        for suffix, weights in (("bytes", None), ("bytes_by", w)):
            coded = np.zeros((ROWS, row_bytes), np.uint8)
            for r in range(ROWS):  # an imatrix has one row for all rows of a matrix
                row, of_row = np.ascontiguousarray(x[r]), None if weights is None else np.ascontiguousarray(weights[r])
                row_out = np.zeros(row_bytes, np.uint8)
                ggml.ggml_quantize_chunk(number, row.ctypes.data, row_out.ctypes.data, 0, 1, COLUMNS,
                                         None if of_row is None else of_row.ctypes.data)
                coded[r] = row_out
            out[f"{name}.{suffix}"] = coded
        values = np.zeros((ROWS, COLUMNS), np.float32)
        ggml.ggml_get_type_traits(number).contents.to_float(out[f"{name}.bytes"].ctypes.data, values.ctypes.data, ROWS * COLUMNS)
        out[f"{name}.f32"] = values
    save_file(out, os.path.join(os.path.dirname(os.path.abspath(__file__)), "rows.safetensors"))


main()
