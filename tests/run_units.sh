#!/bin/sh
# Runs each unit test program; says which failed; closes with the count that a reader looks for.
passed=0 failed=0 bad=
for t in "$@"; do
    out=$("$t" 2>&1)
    code=$?
    printf '%s\n' "$out" | grep -vE '^\[ *(RUN|OK) *\]' | grep -vE '^\[=+\] Running|^ *$'
    n=$(printf '%s\n' "$out" | grep -c '^\[       OK \]')
    m=$(printf '%s\n' "$out" | grep -c '^\[  FAILED  \] [a-z_]* *$\|^\[  FAILED  \] [a-z0-9_]*$')
    passed=$((passed + n))
    if [ $code -ne 0 ]; then
        [ "$m" -gt 0 ] || m=1
        failed=$((failed + m))
        bad="$bad $(basename "$t")(exit $code)"
    fi
done
[ -z "$bad" ] || echo "failed:$bad"
echo "unit tests: $passed passed, $failed failed"
[ $failed -eq 0 ]
