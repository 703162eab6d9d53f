#!/bin/sh
# run_units.sh UNIT [NAME...] - runs the unit tests of that program (tests/unit.c): each NAME, or each that it lists, in a process of its
# own, as many at once as there are cores. Shows what failed, was skipped and every line of figures, in the order of names, and closes
# with the count. Nothing may be skipped here: what a unit test needs is in tests/, so a skip is a failure; and so is having no test.
counts=$(dirname "$0")/counts.sh
. "$counts"
unit=$1
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- $("$unit" --list)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
export work unit

# A failed test must not end the others, so xargs sees none fail.
printf '%s\n' "$@" | xargs -r -P "$(nproc 2>/dev/null || echo 2)" -I{} sh -c \
    '"$unit" "$1" >"$work/$1.out" 2>&1; echo $? >"$work/$1.code"' - {}
for name in "$@"; do
    out=$(cat "$work/$name.out" 2>/dev/null)
    code=$(cat "$work/$name.code" 2>/dev/null || echo 'nothing: it did not run')
    summed() { printf '%s\n' "$out" | sed -n "s/^\[  $1 *\] \([0-9][0-9]*\) test(s).*/\1/p" | awk '{n += $1} END {print n + 0}'; }
    ok=$(summed PASSED) bad=$(summed FAILED) left_out=$(summed SKIPPED)
    printf '%s\n' "$out" | grep -vE '^\[ *(RUN|OK|=*|PASSED) *\]|^ *$'
    [ "$left_out" -eq 0 ] || echo "$name: $left_out skipped, which counts as failed"
    # a program that fails or ends early without saying which test it was still counts
    if [ "$code" != 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    [ "$code" = 0 ] || echo "$name failed with exit code $code"
    if [ "$code" = 0 ] && [ "$ok" -eq 0 ] && [ "$left_out" -eq 0 ]; then
        bad=$((bad + 1))
        echo "$name ran no test"
    fi
    count "$ok" $((bad + left_out)) 0
done
close_counts 'unit tests'
