#!/bin/bash
# shared.sh BUILD_DIR - tools that were built by make SHARED=1: what they take from libaprkit.so.0 they do not have themselves, another version
# of the library is refused, the library is the same for other programs (tests/library.sh), and verbs answer as ever.
export OMP_WAIT_POLICY=passive # only tools that have OpenMP in them can say so themselves (tools/cli/openmp_spin.c)
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
. "$root/tests/counts.sh"
# check WHAT COMMAND...: it succeeds
check() { local what=$1; shift; if "$@" >"$work/out" 2>&1; then count 1 0 0; else echo "FAILED shared: $what"; count 0 1 0; head -n 20 "$work/out"; fi; }

names() { nm "$@" | awk 'NF == 3 && $2 ~ /[TDBRC]/ {sub(/@.*/, "", $3); print $3}' | grep '^apr' | sort -u; }
names -D --defined-only "$build/lib/libaprkit.so.0" >"$work/library"
loads() { readelf -d "$1" | grep -q 'NEEDED.*\[libaprkit.so.0\]'; }
# no second copy of what the library has
once() { [ "$(wc -l <"$work/library")" -gt 100 ] && ! names --defined-only "$1" | comm -12 - "$work/library" | grep . &&
    ! names --defined-only "$1" | comm -12 - <(sed -n 's/^aprkit_private_//p' "$work/library" | sort) | grep .; }
# public names have the version of the interface, others that of this very library
versioned() { ! nm -D -u "$1" | grep -E '\<aprkit?_' | grep -vE '\<aprkit_[a-z_]+@APRKIT_0$|\<aprkit_private_apr_[a-z0-9_]+@APRKIT_PRIVATE_[0-9.]+$'; }
for tool in aprconv aprquant aprplan aprrun; do
    check "$tool does not load the library" loads "$build/$tool"
    check "$tool has functions of the library" once "$build/$tool"
    check "$tool takes names of no version" versioned "$build/$tool"
done
mkdir "$work/other"
{ echo 'APRKIT_0 {'; echo ' global:'; sed -n '/^aprkit_private/!s/.*/  &;/p' "$work/library"; echo '};'; echo 'APRKIT_PRIVATE_0.0.1 {'; echo ' global:'; sed -n 's/^aprkit_private_.*/  &;/p' "$work/library"; echo '};'; } >"$work/map"
sed 's/.*/void &(void); void &(void) {}/' "$work/library" >"$work/other.c"
cc -shared -fPIC -w -Wl,-soname,libaprkit.so.0 -Wl,--version-script="$work/map" "$work/other.c" -o "$work/other/libaprkit.so.0"
refused() { ! LD_LIBRARY_PATH=$work/other "$build/aprrun" --version >"$work/said" 2>&1 && grep -q APRKIT_PRIVATE_ "$work/said"; }
check "another version of the library is taken" refused
check "the library for other programs" "$root/tests/library.sh" "$build"
check "what verbs answer" "$root/tests/run_cli.sh" "$build" verify_same plan_table tokenize run_chat run_gguf quant_report convert_safetensors_and_back
close_counts shared
