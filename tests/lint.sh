#!/bin/sh
# What a reader would stumble over: files over 700 lines, functions over 70, calls that are banned, unformatted code.
bad=0
say() { echo "lint: $*"; bad=1; }
sources=$(git ls-files '*.c' '*.h')

for f in $sources; do
    case $f in *codebooks*) continue ;; esac
    n=$(wc -l <"$f")
    [ "$n" -le 700 ] || say "$f: $n lines"
done
# A function runs from a '{' in the first column to a '}' in the first column.
for f in $(git ls-files '*.c'); do
    awk -v f="$f" '/^\{/ {start = NR} /^\}/ {if (start && NR - start > 70) {printf "lint: %s:%d: a function of %d lines\n", f, start, NR - start; bad = 1} start = 0} END {exit bad}' "$f" || bad=1
done
out=$(grep -nE '\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok|alloca)\(' $(git ls-files '*.[ch]' | grep -v '^tests/')) && say "banned calls:
$out"
out=$(grep -nE '\b(exit|printf|puts|getenv|abort)\(' $(git ls-files 'formats/*' 'kernels/*' 'quant/*' 'convert/*' 'runtime/*' | grep '\.[ch]$') | grep -v 'format(printf') && say "only tools/ may exit, print or read the environment:
$out"
if clang-format --version 2>/dev/null | grep -q 'version 14'; then
    for f in $sources; do
        case $f in *codebooks*) continue ;; esac
        clang-format --dry-run --Werror "$f" >/dev/null 2>&1 || say "$f: not formatted (make format)"
    done
fi
[ $bad -eq 0 ] && echo "lint: nothing found"
exit $bad
