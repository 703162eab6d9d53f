#!/bin/sh
# Figures, in one run: gguf2apr of a file over 1 GB against cp of it, aprquant's speed, and host decoding and prompt speed.
# usage: bench.sh BUILD_DIR. Needs about 6 GB under BUILD_DIR, or under $BENCH_DIR.
set -e
build=$1
work=${BENCH_DIR:-$build/bench}
mkdir -p "$work"
[ -d "$work/checkpoint" ] || "$build/bench_synth" tests/data/shapes/synthetic-660m.json "$work/checkpoint"
[ -f "$work/f16.gguf" ] || "$build/aprquant" --to f16 "$work/checkpoint" "$work/f16.gguf" >/dev/null

seconds() { # command: wall time, output dropped
    start=$(date +%s%N)
    "$@" >/dev/null
    echo "$(date +%s%N) $start" | awk '{printf "%.3f\n", ($1 - $2) / 1e9}'
}
median() { sort -n | awk '{v[NR] = $1} END {printf "%.3f", v[int((NR + 1) / 2)]}'; }

echo "# conversion: $(du -h --apparent-size "$work/f16.gguf" | cut -f1) GGUF (f16) in $(stat -f -c %T "$work"), seven pairs in turn after a warm-up"
cat "$work/f16.gguf" >/dev/null
: >"$work/cp.s"; : >"$work/sync.s"; : >"$work/convert.s"
for i in 0 1 2 3 4 5 6 7; do
    rm -f "$work/copy.gguf" "$work/out.apr"; sync "$work"
    a=$(seconds cp "$work/f16.gguf" "$work/copy.gguf")
    rm -f "$work/copy.gguf"; sync "$work"
    b=$(seconds sh -c "cp $work/f16.gguf $work/copy.gguf && sync $work/copy.gguf")
    rm -f "$work/copy.gguf"; sync "$work"
    c=$(seconds "$build/aprconv" gguf2apr "$work/f16.gguf" "$work/out.apr")
    [ $i -eq 0 ] && continue
    echo "$a" >>"$work/cp.s"; echo "$b" >>"$work/sync.s"; echo "$c" >>"$work/convert.s"
done
a=$(median <"$work/cp.s") b=$(median <"$work/sync.s") c=$(median <"$work/convert.s")
echo "$a $b $c" | awk '{printf "  cp %.3f s   cp and sync %.3f s   aprconv gguf2apr (with checksums and fsync) %.3f s\n  ratio to cp %.2f, to cp and sync %.2f\n", $1, $2, $3, $3 / $1, $3 / $2}'
rm -f "$work/copy.gguf" "$work/out.apr"

echo "# quantization: 673 M weights from f16"
for type in q8_0 mxfp4 q4_k_m; do
    s=$(seconds "$build/aprquant" --to $type -f "$work/f16.gguf" "$work/$type.apr")
    echo "$s" | awk -v t=$type '{printf "  %-7s %6.2f s  %6.1f M weights/s\n", t, $1, 673.2 / $1}'
done

echo "# running on the host, $(nproc) cores"
for type in q8_0 q4_k_m mxfp4; do "$build/bench_host" "$work/$type.apr" 64 16; done
"$build/bench_host" "$work/f16.gguf" 64 16
