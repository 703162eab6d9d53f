#!/usr/bin/env python3
"""ask.py MODEL QUESTION - prints a model's answer as it comes. Needs nothing but libaprkit (LD_LIBRARY_PATH says where)."""
import ctypes, sys
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p


class Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("text", c_char * 1024)]


class Message(ctypes.Structure):
    _fields_ = [("role", c_char_p), ("content", c_char_p)]


class Generate(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("messages", POINTER(Message)), ("n_messages", c_size_t), ("text", c_char_p), ("max_tokens", c_int64),
                ("temperature", c_float), ("top_p", c_float), ("min_p", c_float), ("top_k", c_int64), ("repeat_penalty", c_float),
                ("seed", c_uint64), ("stops", POINTER(c_char_p)), ("n_stops", c_size_t)]


lib, error = ctypes.CDLL("libaprkit.so.0"), Error()
lib.aprkit_model_close.argtypes = lib.aprkit_session_close.argtypes = [c_void_p]


def call(function, *arguments):
    if function(*arguments, byref(error)) != 0:
        sys.exit(error.text.decode())


@ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_char), c_size_t)
def show(user, text, n):
    print(ctypes.string_at(text, n).decode(), end="", flush=True)
    return 0


model, session = c_void_p(), c_void_p()
call(lib.aprkit_model_open, byref(model), sys.argv[1].encode(), None)
call(lib.aprkit_session_open, byref(session), model, None)
messages = (Message * 1)(Message(b"user", sys.argv[2].encode()))
options = Generate(size=ctypes.sizeof(Generate), messages=messages, n_messages=1, max_tokens=200)
call(lib.aprkit_generate, session, byref(options), show, None)
print()
lib.aprkit_session_close(session)
lib.aprkit_model_close(model)
