#!/bin/sh
# run_replays.sh PROGRAM... - gives each fuzz target every file of its corpus: replay_fuzz_NAME reads tests/corpus/NAME/*.
# A find crashes the program, so each file is counted by the program's last line; a target without files is a failure.
here=$(dirname "$0")
. "$here/counts.sh"
for t in "$@"; do
    name=$(basename "$t")
    corpus=$here/corpus/${name#replay_fuzz_}
    files=$(find "$corpus" -type f 2>/dev/null | sort)
    n=$(printf '%s' "$files" | grep -c .)
    if [ "$n" -eq 0 ]; then
        echo "$name: there is nothing in $corpus"
        count 0 1 0
    elif out=$("$t" $files 2>&1); then
        printf '%s\n' "$out"
        count "$n" 0 0
    else
        printf '%s\n' "$out" | tail -n 40
        echo "$name failed with exit code $? or by a signal"
        count 0 1 0
    fi
done
close_counts 'fuzz corpora'
