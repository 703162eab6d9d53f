#!/bin/sh
# Golden on a busy machine: `aprrun golden` of the bundled model of 1.7 M weights alone, and next to two loops for each core that
# never wait. Its share of the cores is a third there; what is more than 5 x its quiet time, threads lost by waiting for one another.
# usage: bench_busy.sh BUILD_DIR. Says what it measured; exit 1 when the ratio is above 5.
set -e
build=$1
work=$(mktemp -d)
loops=
trap 'for p in $loops; do kill "$p" 2>/dev/null || :; done; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
model=tests/data/tiny-qwen2

golden() { # wall seconds, and the processor's of all threads; median of five by wall time after a warm-up
    : >"$work/all"
    for i in 0 1 2 3 4 5; do
        times >"$work/before"
        start=$(date +%s%N)
        "$build/aprrun" golden "$model" "$model/golden.json" >/dev/null
        end=$(date +%s%N)
        times >"$work/after"
        [ $i -eq 0 ] || cat "$work/before" "$work/after" | awk -v wall="$((end - start))" \
            'NR % 2 == 0 {gsub(/[ms]/, " "); t[++n] = 60 * $1 + $2 + 60 * $3 + $4} END {printf "%.3f %.3f\n", wall / 1e9, t[2] - t[1]}' >>"$work/all"
    done
    sort -n "$work/all" | sed -n 3p
}

echo "# golden of $model on a busy machine, $(nproc) cores, load before: $(cut -d' ' -f1 /proc/loadavg); medians of five after a warm-up"
quiet=$(golden)
for i in $(seq $((2 * $(nproc)))); do
    sh -c 'while :; do :; done' &
    loops="$loops $!"
done
busy=$(golden)
echo "$quiet $busy" | awk '{
    printf "  alone                    %7.2f s, %6.2f s of all cores\n  next to 2 loops a core   %7.2f s, %6.2f s of all cores\n", $1, $2, $3, $4
    printf "  ratio %.2f (at most 5)\n", $3 / $1
    exit $3 > 5 * $1}'
