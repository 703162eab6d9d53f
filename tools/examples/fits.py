#!/usr/bin/env python3
"""fits.py MODEL TYPE [CONTEXT [GPU...]] - a table of GPUs: what a run takes there, and whether it fits. Without GPUs: all that are known."""
import ctypes, sys
from ctypes import byref, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p


class Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("text", c_char * 1024)]


class Plan(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("gpu", c_char_p), ("vram", c_uint64), ("memory", c_uint64), ("headroom", c_uint64), ("to", c_char_p),
                ("kv", c_char_p), ("n_context", c_int64), ("n_batch", c_int64), ("n_sequences", c_int64)]


lib, error, model = ctypes.CDLL("libaprkit.so.0"), Error(), c_void_p()
lib.aprkit_gpu_name.restype, lib.aprkit_gpu_name.argtypes = c_char_p, [c_size_t]
for name, result in (("total", c_uint64), ("budget", c_uint64), ("max_ctx", c_int64), ("fits", c_int), ("close", None)):
    function = getattr(lib, "aprkit_plan_" + name)
    function.restype, function.argtypes = result, [c_void_p]


def call(function, *arguments):
    if function(*arguments, byref(error)) != 0:
        sys.exit(error.text.decode())


path, to, context = sys.argv[1].encode(), sys.argv[2].encode(), int(sys.argv[3]) if len(sys.argv) > 3 else 0
gpus = [name.encode() for name in sys.argv[4:]] or list(iter(lambda n=iter(range(1000)): lib.aprkit_gpu_name(next(n)), None))
call(lib.aprkit_model_open, byref(model), path, None)
print(f"{'GPU':24} {'needs GiB':>10} {'of GiB':>10} {'fits':>5} {'context up to':>14}")
for gpu in gpus:
    plan = c_void_p()
    options = Plan(size=ctypes.sizeof(Plan), gpu=gpu, to=to, n_context=context)
    call(lib.aprkit_plan_make, byref(plan), model, byref(options))
    total, budget = lib.aprkit_plan_total(plan) / 2**30, lib.aprkit_plan_budget(plan) / 2**30
    fits = "yes" if lib.aprkit_plan_fits(plan) else "no"
    print(f"{gpu.decode():24} {total:10.2f} {budget:10.2f} {fits:>5} {lib.aprkit_plan_max_ctx(plan):14d}")
    lib.aprkit_plan_close(plan)
lib.aprkit_model_close.argtypes = [c_void_p]
lib.aprkit_model_close(model)
