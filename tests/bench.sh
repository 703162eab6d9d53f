#!/bin/sh
# Figures, in one run: gguf2apr of a file over 1 GB against cp of it; the codecs' rates, aprquant to and from every type against cp
# and, where $LLAMA_QUANTIZE names one, against llama-quantize with as many threads; and how fast the host runs the results, against
# llama-bench where $LLAMA_BENCH names one. Each promise is printed with its bound, and whether it is kept.
# usage: bench.sh BUILD_DIR. Needs about 6 GB under $BENCH_DIR; without one it is a folder in /dev/shm, removed at the end, where there
# is that much room, and otherwise under BUILD_DIR. $BENCH_PARTS: some of "convert quantize run busy".
set -e
build=$1
shape=${BENCH_SHAPE:-tests/data/shapes/synthetic-660m.json}
if [ -n "$BENCH_DIR" ]; then
    work=$BENCH_DIR
elif [ "$(df -Pk /dev/shm 2>/dev/null | awk 'END {print int($4 / 1048576)}')" -ge 8 ] 2>/dev/null; then
    work=$(mktemp -d /dev/shm/aprkit-bench-XXXXXX)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM
else
    work=$build/bench
fi
mkdir -p "$work"
[ -d "$work/checkpoint" ] || "$build/bench_synth" "$shape" "$work/checkpoint"
[ -f "$work/f16.gguf" ] || "$build/aprquant" --to f16 "$work/checkpoint" "$work/f16.gguf" >/dev/null

seconds() { # command: wall time, output dropped
    start=$(date +%s%N)
    "$@" >/dev/null
    echo "$(date +%s%N) $start" | awk '{printf "%.3f\n", ($1 - $2) / 1e9}'
}
median() { sort -n | awk '{v[NR] = $1} END {printf "%.3f", v[int((NR + 1) / 2)]}'; }

parts=" ${BENCH_PARTS:-convert quantize busy run} "
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

# Of a command that makes a file, which is removed before each of five runs after a warm-up: median, least and most of the wall's
# seconds, and the median of the processor's (of all threads). On a machine that others use, only the latter say much.
once() { # name of the figures, run, file, command
    name=$1 i=$2 made=$3
    shift 3
    rm -f "$made"
    times >"$work/before"
    w=$(seconds "$@")
    times >"$work/after"
    [ "$i" -gt 0 ] || { : >"$work/$name.wall"; : >"$work/$name.cpu"; return 0; }
    echo "$w" >>"$work/$name.wall"
    cat "$work/before" "$work/after" | awk 'NR % 2 == 0 {gsub(/[ms]/, " "); t[++n] = 60 * $1 + $2 + 60 * $3 + $4} END {printf "%.3f\n", t[2] - t[1]}' >>"$work/$name.cpu"
}
figures() { # name
    echo "$(median <"$work/$1.wall") $(sort -n "$work/$1.wall" | awk 'NR == 1 {a = $1} {b = $1} END {print a, b}') $(median <"$work/$1.cpu")"
}
timed() { # file, command
    for i in 0 1 2 3 4 5; do once ours $i "$@"; done
    figures ours
}
# The same, in turn with cp of the f16 file, whose figures are left in cp.wall and cp.cpu: a machine that changes its pace in the course
# of half an hour changes both.
timed_beside_cp() { # file, command
    for i in 0 1 2 3 4 5; do
        once cp $i "$work/copy.gguf" cp "$work/f16.gguf" "$work/copy.gguf"
        rm -f "$work/copy.gguf"
        once ours $i "$@"
    done
    figures ours
}
# Two times of `timed`, the second one what the first is measured by; a bound for wall1 / wall2 (at_most) or wall2 / wall1 (at_least).
# Where either is missing, there is nothing to say.
say() { # name, time
    echo "$2" | awk -v t="$1" '{printf "  %-24s %6.2f s (%.2f to %.2f), %6.2f s of all cores\n", t, $1, $2, $3, $4}'
}
at_most() { # name, time, of what, its time, bound
    echo "$2 $4" | awk -v t="$1" -v u="$3" -v b="$5" 'NF < 8 {printf "    - no %s to compare with (bound %s)\n", u, b; next}
        {printf "    %.2f x %s (%.2f by processor time), bound %s: %s\n", $1 / $5, u, $4 / $8, b, $1 / $5 <= b ? "kept" : "not kept"}'
}
at_least() { # name, time, of what, its time, bound
    echo "$2 $4" | awk -v t="$1" -v u="$3" -v b="$5" 'NF < 8 {printf "    - no %s to compare with (bound %s x as fast)\n", u, b; next}
        {printf "    %.2f x as fast as %s (%.2f by processor time), bound %s: %s\n", $5 / $1, u, $8 / $4, b, ($5 / $1 >= b ? "kept" : "not kept")}'
}
# Squared error of a model's matrices against the file that they were made of.
squared_error() { # model
    "$build/aprconv" diff --json "$work/f16.gguf" "$1" | tr '{' '\n' | awk -F'"shape":\\[|\\]|"rmse":|,"snr' '
        /"rmse":[0-9]/ {n = 1; k = split($2, d, ","); for (i = 1; i <= k; i++) n *= d[i]; for (i = 3; i <= NF; i++) if ($i ~ /^[0-9.e+-]+$/) r = $i; sum += r * r * n}
        END {printf "%.6g", sum}'
}
llama_quantize() { # file, TYPE; nothing where there is no such program
    [ -z "$LLAMA_QUANTIZE" ] || timed "$1" "$LLAMA_QUANTIZE" "$work/f16.gguf" "$1" "$2" "$(nproc)" 2>/dev/null
}
# Each type to f16, of random blocks where nothing here makes them.
to_f16() { # type
    case $1 in
    fp8 | bf16 | f32) "$build/aprquant" --to "$1" --quiet -f "$work/f16.gguf" "$work/from.apr" >/dev/null ;;
    *) "$build/bench_synth" "$shape" "$work/from.apr" "$1" ;;
    esac
    t=$(timed_beside_cp "$work/to.gguf" "$build/aprquant" --to f16 --allow-requantize --quiet "$work/from.apr" "$work/to.gguf" 2>/dev/null)
    say "$1 to f16" "$t"
    at_most "$1 to f16" "$t" cp "$(figures cp)" 2.5
    rm -f "$work/from.apr" "$work/to.gguf"
}
if has quantize; then
    echo "# codecs"
    "$build/bench_codecs"
    echo "# quantization of 673 M weights from f16, $(nproc) cores, in $(stat -f -c %T "$work"); medians of five after a warm-up, and their range"
    say cp "$(timed "$work/copy.gguf" cp "$work/f16.gguf" "$work/copy.gguf")"
    rm -f "$work/copy.gguf"
    llama_8=$(llama_quantize "$work/llama.gguf" Q8_0)
    [ -z "$llama_8" ] || say "llama-quantize Q8_0" "$llama_8"
    for type in q8_0 mxfp4 fp8; do
        for cpu in auto avx2 plain; do
            "$build/aprquant" --cpu $cpu --to $type -n --quiet "$work/f16.gguf" "$work/$type.apr" >/dev/null 2>&1 || continue
            t=$(timed_beside_cp "$work/$type.apr" "$build/aprquant" --cpu $cpu --to $type --quiet "$work/f16.gguf" "$work/$type.apr")
            say "$type --cpu $cpu" "$t"
            [ $cpu = auto ] || continue
            at_most "$type" "$t" cp "$(figures cp)" 2.5
            at_most "$type" "$t" "llama-quantize (Q8_0), which is enough instead" "$llama_8" 0.4
        done
        rm -f "$work/$type.apr"
    done
    llama_4=$(llama_quantize "$work/llama.gguf" Q4_K_M)
    [ -z "$llama_4" ] || say "llama-quantize Q4_K_M" "$llama_4"
    for cpu in avx512 avx2 plain; do
        "$build/aprquant" --cpu $cpu --to q4_k_m -n --quiet "$work/f16.gguf" "$work/ours.gguf" >/dev/null 2>&1 || continue
        t=$(timed "$work/ours.gguf" "$build/aprquant" --cpu $cpu --to q4_k_m --quiet "$work/f16.gguf" "$work/ours.gguf")
        say "q4_k_m --cpu $cpu" "$t"
        case $cpu in avx512) bound=6 ;; avx2) bound=3 ;; *) bound= ;; esac
        [ -z "$bound" ] || at_least "q4_k_m" "$t" llama-quantize "$llama_4" $bound
    done
    ours=$(squared_error "$work/ours.gguf")
    theirs=$([ ! -f "$work/llama.gguf" ] || squared_error "$work/llama.gguf")
    echo "$ours $theirs" | awk '{printf "  squared error of q4_k_m   %s", $1
        if (NF < 2) print "   - no llama-quantize to compare with"; else printf "   %.4f x llama-quantize (%s), bound 1.001: %s\n", $1 / $2, $2, $1 <= 1.001 * $2 ? "kept" : "not kept"}'
    rm -f "$work/ours.gguf" "$work/llama.gguf"
    for type in q8_0 mxfp4 fp8 bf16 f32 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s \
        iq4_nl iq4_xs tq1_0 tq2_0 nvfp4 q1_0 q2_0; do
        to_f16 $type
    done
fi

# Tokens a second of a prompt of 64 and of 32 tokens without a prompt: medians of five, in turn with llama-bench.
once_ours() { # model, options
    m=$1
    shift
    "$build/aprrun" bench --csv --repeat 1 "$@" "$m" | awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) if ($i == "tokens_per_second") b = i} NR == 2 {print $b}'
}
once_llamas() { # model, options
    m=$1
    shift
    "$LLAMA_BENCH" -m "$m" -t "$(nproc)" -r 1 -o jsonl "$@" 2>/dev/null | sed -n 's/.*"samples_ts": *\[\([^],]*\).*/\1/p'
}
range() { sort -n "$1" | awk '{v[NR] = $1} END {printf "%.2f (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR]}'; }
compare_speed() { # model, name, stage, bound, options of both
    m=$1 name=$2 stage=$3 bound=$4
    shift 4
    : >"$work/ours.tps"; : >"$work/llamas.tps"
    for i in 1 2 3 4 5; do
        once_ours "$m" "$@" >>"$work/ours.tps"
        [ -z "$LLAMA_BENCH" ] || once_llamas "$m" "$@" >>"$work/llamas.tps"
    done
    printf '  %-8s %-5s %s tokens/s' "$name" "$stage" "$(range "$work/ours.tps")"
    if [ -s "$work/llamas.tps" ]; then
        echo "$(median <"$work/ours.tps") $(median <"$work/llamas.tps")" | awk -v r="$(range "$work/llamas.tps")" -v b="$bound" \
            '{printf "   %.2f x llama-bench, %s, bound %s: %s\n", $1 / $2, r, b, ($1 / $2 >= b ? "kept" : "not kept")}'
    else
        echo "   - no llama-bench to compare with (bound $bound x)"
    fi
}
if has run; then
    echo "# products of rows as they are stored"
    "$build/bench_products"
    echo "# running on the host, $(nproc) cores: a prompt of 64, and 32 tokens one by one; medians of five"
    for type in q8_0 q4_k_m f16; do
        model=$work/$type.gguf
        [ -f "$model" ] || "$build/aprquant" --to $type --quiet "$work/f16.gguf" "$model" >/dev/null
        compare_speed "$model" $type tg32 0.85 -p 0 -n 32
        compare_speed "$model" $type pp64 0.6 -p 64 -n 0
        [ $type = f16 ] || rm -f "$model"
    done
    "$build/aprquant" --to mxfp4 --quiet -f "$work/f16.gguf" "$work/mxfp4.apr" >/dev/null
    "$build/bench_host" "$work/mxfp4.apr" 64 16
    rm -f "$work/mxfp4.apr"
fi
if has busy; then "$(dirname "$0")/bench_busy.sh" "$build" || echo "  above the bound"; fi
