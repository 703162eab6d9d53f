#!/bin/sh
# run_replays.sh FUZZ_REPLAY - gives each fuzz target of that program every file of its corpus, tests/corpus/TARGET/*.
# A target without files is a failure; one that a file brings down names the file by its claim or its sanitizer's report.
here=$(dirname "$0")
. "$here/counts.sh"
for target in $("$1" --list); do
    files=$(find "$here/corpus/$target" -type f 2>/dev/null | sort)
    n=$(printf '%s' "$files" | grep -c .)
    if [ "$n" -eq 0 ]; then
        echo "$target: there is nothing in $here/corpus/$target"
        count 0 1 0
    elif out=$("$1" "$target" $files 2>&1); then
        printf '%s\n' "$out"
        count "$n" 0 0
    else
        code=$?
        printf '%s\n' "$out" | tail -n 40
        echo "$target failed with exit code $code"
        count 0 1 0
    fi
done
close_counts 'fuzz corpora'
