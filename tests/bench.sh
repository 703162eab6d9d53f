#!/bin/sh
# Figures, in one run: gguf2apr of a file over 1 GB against cp of it, the codecs' rates, aprquant against cp and, where
# $LLAMA_QUANTIZE names one, against llama-quantize with as many threads, and host decoding and prompt speed.
# usage: bench.sh BUILD_DIR. Needs about 6 GB under BUILD_DIR, or under $BENCH_DIR. $BENCH_PARTS: some of "convert quantize run".
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

parts=" ${BENCH_PARTS:-convert quantize run} "
has() { case $parts in *" $1 "*) ;; *) return 1 ;; esac; }

if has convert; then
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
fi

# Wall seconds of a command, median of five after a warm-up, and the processor's seconds (of all threads): on a machine that
# others use, only the latter say much.
timed() { # command
    : >"$work/wall.s"; : >"$work/cpu.s"
    for i in 0 1 2 3 4 5; do
        times >"$work/before"
        w=$(seconds "$@")
        times >"$work/after"
        [ $i -eq 0 ] && continue
        echo "$w" >>"$work/wall.s"
        cat "$work/before" "$work/after" | awk 'NR % 2 == 0 {gsub(/[ms]/, " "); t[++n] = 60 * $1 + $2 + 60 * $3 + $4} END {printf "%.3f\n", t[2] - t[1]}' >>"$work/cpu.s"
    done
    echo "$(median <"$work/wall.s") $(median <"$work/cpu.s")"
}
say() { # name, "wall cpu", "wall cpu" of cp, of llama-quantize or nothing
    echo "$2 $3 $4" | awk -v t="$1" '{printf "  %-22s %6.2f s, %6.2f s of all cores   %5.2f x cp (%.2f by processor time)", t, $1, $2, $1 / $3, $2 / $4
        if ($5 > 0) printf "   llama-quantize %6.2f s: %.2f x as fast (%.2f by processor time)", $5, $5 / $1, $6 / $2; print ""}'
}
if has quantize; then
    echo "# codecs"
    "$build/bench_codecs"
    echo "# quantization of 673 M weights from f16, $(nproc) cores, in $(stat -f -c %T "$work"); medians of five after a warm-up"
    cp_s=$(timed cp "$work/f16.gguf" "$work/copy.gguf")
    rm -f "$work/copy.gguf"
    say cp "$cp_s" "$cp_s"
    for type in q4_k_m q8_0 mxfp4 fp8 q6_k; do
        llama=
        case $type in q4_k_m) theirs=Q4_K_M ;; q8_0) theirs=Q8_0 ;; q6_k) theirs=Q6_K ;; *) theirs= ;; esac
        if [ -n "$LLAMA_QUANTIZE" ] && [ -n "$theirs" ]; then
            llama=$(timed "$LLAMA_QUANTIZE" "$work/f16.gguf" "$work/llama.gguf" "$theirs" "$(nproc)" 2>/dev/null)
            rm -f "$work/llama.gguf"
        fi
        for cpu in auto avx2 plain; do
            "$build/aprquant" --cpu $cpu --to $type -n --quiet "$work/f16.gguf" "$work/$type.apr" >/dev/null 2>&1 || continue
            say "$type --cpu $cpu" "$(timed "$build/aprquant" --cpu $cpu --to $type --quiet -f "$work/f16.gguf" "$work/$type.apr")" "$cp_s" "$llama"
        done
        say "$type to f16" "$(timed "$build/aprquant" --to f16 --allow-requantize --quiet -f "$work/$type.apr" "$work/back.gguf")" "$cp_s"
        rm -f "$work/back.gguf"
    done
fi

has run || exit 0
echo "# products of rows as they are stored"
"$build/bench_products"
for type in q8_0 q4_k_m mxfp4; do
    [ -f "$work/$type.apr" ] || "$build/aprquant" --to $type "$work/f16.gguf" "$work/$type.apr" >/dev/null
done
echo "# running on the host, $(nproc) cores"
for type in q8_0 q4_k_m mxfp4; do "$build/bench_host" "$work/$type.apr" 64 16; done
"$build/bench_host" "$work/f16.gguf" 64 16
