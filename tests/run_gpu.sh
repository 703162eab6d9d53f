#!/bin/sh
# run_gpu.sh BUILD_DIR TEST... - runs the tests that need a GPU. With CUDA=1 in the environment the CUDA library was built.
#
# Two things excuse a machine, and are reported: the library was not built (no nvcc), and there is no driver or no device. A
# library that was built and does not load, lacks a symbol or belongs to another version is a failure, also without a GPU.
bin=$1
shift
here=$(dirname "$0")
lib=$bin/libaprkit-cuda.so
. "$here/counts.sh"

skip_all() {
    for t in "$@"; do count 0 0 1; done
    echo "skipped, because $why: $(for t in "$@"; do basename "$t"; done | tr '\n' ' ')"
    close_counts 'GPU tests'
    exit
}
fail() {
    echo "$1"
    count 0 1 0
    close_counts 'GPU tests'
    exit 1
}

[ $# -gt 0 ] || fail "there is no GPU test to run"
if [ "$CUDA" != 1 ]; then
    why="the CUDA library was not built (no nvcc, or CUDA=0)"
    skip_all "$@"
fi
[ -f "$lib" ] || fail "$lib was to be built, and is not there"
# Without a driver the library is not opened; its missing symbols show all the same.
missing=$("$here/loads.sh" "$lib") || fail "$missing"
if ! said=$("$bin/aprrun" doctor --quick --device cuda 2>&1); then
    case $said in
    *'there is no NVIDIA driver here'* | *'there is no CUDA device'*) why=$said && skip_all "$@" ;;
    *) fail "there is a driver, but: $said" ;;
    esac
fi
printf '%s\n' "$said"

CUDA_DISABLE_PTX_JIT=1
export CUDA_DISABLE_PTX_JIT
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
export work
# One after the other, unless $GPU_JOBS says how many of those at once that measure neither memory nor speed. That is for a quick look:
# some tests fill memory on the default stream, and do not wait for it; with others on the same GPU they then fail (gpu_prompt, gpu_reuse).
apart=' gpu_plan gpu_places gpu_sequences gpu_session gpu_together gpu_drills gpu_train gpu_bench_attend gpu_bench_decode_gemv gpu_bench_linear '
cat >"$work/run_one" <<'END'
name=$(basename "$1")
"$1" >"$work/$name.out" 2>&1
echo $? >"$work/$name.code"
END
for t in "$@"; do
    case $apart in *" $(basename "$t") "*) sh "$work/run_one" "$t" ;; *) echo "$t" >>"$work/together" ;; esac
done
[ ! -f "$work/together" ] || xargs -P "${GPU_JOBS:-1}" -I{} sh "$work/run_one" {} <"$work/together"
for t in "$@"; do
    name=$(basename "$t")
    grep -vE '^\[ *(RUN|=*|PASSED) *\]|^ *$' "$work/$name.out"
    code=$(cat "$work/$name.code" 2>/dev/null || echo 'nothing: it did not run')
    case $code in
    0) count 1 0 0 ;;
    *) # also "no device": there is one
        count 0 1 0
        echo "$name failed with exit code $code"
        ;;
    esac
    ! grep -q '^skipped: no device' "$work/$name.out" || fail "$name finds no device, though doctor does"
done
mkdir -p build
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        if compute-sanitizer --tool $tool --error-exitcode 1 "$bin/aprrun" --device cuda tests/data/tiny-qwen2 -n 8 -p \
            'In the beginning God created the heaven and the earth. And the earth was' >build/sanitizer.log 2>&1; then
            count 1 0 0
        else
            count 0 1 0
        fi
        echo "$tool: $(grep 'SUMMARY' build/sanitizer.log || echo 'failed; see build/sanitizer.log')"
    done
else
    count 0 0 2
    echo "skipped, because compute-sanitizer is not here: memcheck racecheck"
fi
if "$bin/aprrun" golden --device cuda tests/data/tiny-qwen2 tests/data/tiny-qwen2/golden.json; then
    count 1 0 0
else
    count 0 1 0
fi
close_counts 'GPU tests'
