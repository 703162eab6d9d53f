#!/bin/sh
# Runs each unit test program, shows what failed and every line of figures, closes with the count.
passed=0 failed=0
for t in "$@"; do
    out=$("$t" 2>&1)
    code=$?
    printf '%s\n' "$out" | grep -vE '^\[ *(RUN|OK|=*|PASSED) *\]|^ *$'
    passed=$((passed + $(printf '%s\n' "$out" | grep -c '^\[       OK \]')))
    if [ $code -ne 0 ]; then
        failed=$((failed + 1))
        echo "$(basename "$t") failed with exit code $code"
    fi
done
echo "unit tests: $passed passed, $failed failed"
[ $failed -eq 0 ]
