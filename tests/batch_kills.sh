#!/bin/sh
# batch_kills.sh BUILD_DIR [KILLS [LINES]] - `aprrun batch` is killed at KILLS (50) random moments while it answers LINES (1000) requests, every
# fifth time by a signal that can be caught, each time with another number of sequences, and goes on with --resume. At the end every line is
# answered once, as by a run that was left alone; what was answered before a kill stays byte for byte.
. "$(dirname "$0")/killing.sh"
kills=${2:-50} lines=${3:-1000}

model=$root/tests/data/tiny-qwen2
awk -v n="$lines" 'BEGIN {
    head = "In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters."
    for (i = 1; i <= n; i++) {
        if (i % 50 == 7) print "{\"id\":" i ",\"prompt\":" i "}"
        else printf "{\"id\":%d,\"prompt\":\"%s %d\",\"max_tokens\":%d,\"temperature\":%s,\"seed\":%d}\n", i, i % 4 == 0 ? head : "And God said", i, 1 + i * 7 % 12, i % 2 ? "0" : "0.9", i
    }
}' >in.jsonl
at=$(now)
aprrun batch "$model" in.jsonl -o whole.jsonl -q 2>/dev/null
[ $? -eq 1 ] || bad "the run that was left alone: exit code $?"
span=$(since "$at")
sort whole.jsonl >want

n_met=0 n_torn=0 turn=0
: >before
while [ $n_met -lt "$kills" ] && [ $turn -lt $((kills * 10)) ]; do
    turn=$((turn + 1))
    signal=KILL
    [ $((turn % 5)) -ne 0 ] || signal=TERM
    env --default-signal=INT,QUIT aprrun batch "$model" in.jsonl -o out.jsonl --resume -q --sequences $((1 + turn * 7 % 24)) >/dev/null 2>err &
    pid=$!
    # all kills together take about as long as the whole run, and each run some time to begin
    sleep "$(moment 20000 $((20000 + span * 5 / 2 / kills)))"
    kill -$signal $pid 2>/dev/null && n_met=$((n_met + 1))
    wait $pid 2>/dev/null
    code=$?
    [ -e out.jsonl ] || continue
    [ -z "$(tail -c 1 out.jsonl | tr -d '\n')" ] || { n_torn=$((n_torn + 1)); [ $signal = KILL ] || bad "$signal left half a line"; }
    head -c "$(wc -c <before)" out.jsonl | cmp -s - before || bad "what was answered before changed (turn $turn)"
    sed -n '$!p' out.jsonl >before # whole lines
    case $code in
    0 | 137) ;;
    1) grep -qE 'ended by signal|could not be answered' err || bad "exit code 1: $(cat err)" ;;
    143) ;; # before it had begun
    *) bad "exit code $code: $(cat err)" ;;
    esac
    [ "$(wc -l <out.jsonl)" -lt "$lines" ] || { rm -f out.jsonl; : >before; } # done: once more
done
aprrun batch "$model" in.jsonl -o out.jsonl --resume -q 2>err
sort out.jsonl >got
cmp -s got want || bad "the answers are others: $(diff want got | head -n 4)"
[ $n_met -eq "$kills" ] || bad "only $n_met of $kills runs were met alive"
echo "batch kills: $n_met runs ended, half a line left by $n_torn, $lines lines answered once each: $failed failed"
[ $failed -eq 0 ]
