#!/bin/sh
# loads.sh LIBRARY - says why LIBRARY, built as libaprkit-cuda.so, could not be loaded: what it misses shows without a driver.
missing=$(ldd -r "$1" 2>&1 | grep -E 'not found|undefined symbol|not a dynamic')
[ -z "$missing" ] || { echo "$1 cannot be loaded:
$missing"; exit 1; }
nm -D --defined-only "$1" | grep -q ' T apr_cuda_plugin$' || { echo "$1 does not export apr_cuda_plugin"; exit 1; }
! nm "$1" | grep -i drill || { echo "$1 has faults on purpose, which belong into libaprkit-cuda-drills.so"; exit 1; }
