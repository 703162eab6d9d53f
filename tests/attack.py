#!/usr/bin/env python3
"""attack.py BUILD_DIR - hostile files, failing system calls and failing allocations through every tool; exit 1 says what was found.

usage: attack.py BUILD_DIR [--seed N] [--runs N] [--faults N] [--allocations N] [--only KIND] [--keep DIR] [--limit SECONDS]
(Python 3 standard library only; the build needs make_family)

A find is a signal, a sanitizer's report, an exit code beyond 7, more than --limit seconds, more or less than one sentence for a failure,
control characters, leftover files, a JSON answer that is not JSON, or an output made with exit 0 that our own reader refuses, that
check judges otherwise than its input, whose tensors differ, or that does not come back byte for byte. --keep keeps the files of each find
under its seed; the same seed makes them again. ASAN builds want --limit 60.
"""
import argparse, os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hostile.faults import Faults
from hostile.mutation import Mutation

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--runs", type=int, default=20000, help="of tools, with mutants")
parser.add_argument("--faults", type=int, default=1500, help="system calls that fail")
parser.add_argument("--allocations", type=int, default=600)
parser.add_argument("--only", help="one kind of mutant: gguf, weights, apr, config, words, adapter, imatrix, batch, golden, diff")
parser.add_argument("--keep")
parser.add_argument("--limit", type=float, default=20, help="seconds for one run")
parser.add_argument("--show", type=int, default=4, help="finds of a kind that are printed")
args = parser.parse_args()
args.data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
n = Mutation(args).all() if args.runs > 0 else 0
if args.faults + args.allocations > 0:
    n += Faults(args).all()
print("attack: seed %d, %s" % (args.seed, "nothing found" if n == 0 else "%d kinds of finds" % n))
sys.exit(1 if n else 0)
