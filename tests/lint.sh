#!/bin/sh
# What a reader would stumble over, in C and in CUDA: folders of more than 30 files, functions of more than 70 lines, calls that are
# banned, retired words, unformatted code. (How files depend on each other: tests/layers.sh reads includes, tests/objects.sh objects.)
bad=0
say() { echo "lint: $*"; bad=1; }
sources=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | grep -v codebooks)
[ -n "$sources" ] || say "git lists no sources here"

out=$(printf '%s\n' $sources | grep -v '^tests/' | sed 's|/[^/]*$||' | sort | uniq -c | awk '$1 > 30 {print $2 " has " $1 " files"}')
[ -z "$out" ] || say "folders of more than 30 files:
$out"
tests/words.sh || bad=1
# A function runs from a '{' in the first column to a '}' in the first column.
for f in $(printf '%s\n' $sources | grep -v '\.h$'); do
    awk -v f="$f" '/^\{/ {start = NR} /^\}/ {if (start && NR - start > 70) {printf "lint: %s:%d: a function of %d lines\n", f, start, NR - start; bad = 1} start = 0} END {exit bad}' "$f" || bad=1
done
out=$(grep -nE '\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok|alloca)\(' $(printf '%s\n' $sources | grep -v '^tests/')) && say "banned calls:
$out"
out=$(grep -nE '\b(exit|printf|puts|getenv|abort)\(' $(printf '%s\n' $sources | grep -vE '^(tests|tools)/') | grep -v 'format(printf') && say "only tools/ may exit, print or read the environment:
$out"
out=$(git grep -nE '\.\./shared|"/work/' -- tests ':!tests/lint.sh' ':!tests/corpus') && say "tests read nothing outside the checkout:
$out"
if clang-format --version 2>/dev/null | grep -q 'version 14'; then
    out=$(clang-format --dry-run --Werror $sources 2>&1) || say "not formatted (make format):
$(printf '%s\n' "$out" | sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: error: .*/\1/p' | sort -u)"
else
    echo "lint: clang-format 14 is not here, so the format was not checked"
fi
[ $bad -eq 0 ] && echo "lint: nothing found"
exit $bad
