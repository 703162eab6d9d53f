#!/bin/sh
# Runs the tests that need a GPU; where there is none, or no driver, says so and is content.
bin=$1
shift
if ! why=$("$bin/aprrun" doctor --quick 2>&1); then
    echo "skipped: no device ($why)"
    exit 0
fi
printf '%s\n' "$why"
CUDA_DISABLE_PTX_JIT=1
export CUDA_DISABLE_PTX_JIT
bad=0
for t in "$@"; do
    out=$("$t" 2>&1)
    code=$?
    printf '%s\n' "$out" | grep -vE '^\[ *(RUN|=*|PASSED) *\]|^ *$'
    [ $code -eq 77 ] && echo "$(basename "$t"): skipped"
    [ $code -eq 0 ] || [ $code -eq 77 ] || { bad=1; echo "$(basename "$t") failed with exit code $code"; }
done
mkdir -p build
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        compute-sanitizer --tool $tool --error-exitcode 1 "$bin/aprrun" --device cuda tests/data/tiny-qwen2 -n 8 -p \
            'In the beginning God created the heaven and the earth. And the earth was' >build/sanitizer.log 2>&1 || bad=1
        echo "$tool: $(grep 'SUMMARY' build/sanitizer.log)"
    done
fi
# prompts go through FP16: logits that reach to 25 are held to 0.05
"$bin/aprrun" golden --device cuda tests/data/tiny-qwen2 tests/data/tiny-qwen2/golden.json || bad=1
[ $bad -eq 0 ] && echo "GPU tests: all passed"
exit $bad
