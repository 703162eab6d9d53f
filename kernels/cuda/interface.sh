#!/bin/sh
# interface.sh - a hash of what the tools and the CUDA library must read alike, as the define APR_CUDA_INTERFACE (kernels/cuda/api.h).
#
# It hashes the code of the headers below and of all headers of ours that they include, each once. No compiler is asked, so that all
# compilers and all flags give the same number. Comments and blank space are left out. --text prints what is hashed.
set -e
cd "$(dirname "$0")/../.."
# what a call passes, what both sides count of a workspace, and how weights are stored in memory
text=$(kernels/closure.sh kernels/cuda/*.h formats/number/blocks.h formats/tensor/canonical_layout.h)
[ "$1" != --text ] || { printf '%s\n' "$text"; exit; }
hash=$(printf '%s\n' "$text" | sha256sum)
printf '#define APR_CUDA_INTERFACE 0x%.8su\n' "$hash"
