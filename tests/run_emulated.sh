#!/bin/sh
# run_emulated.sh DIR TEST... - runs the GPU's tests on the emulated device in DIR (tests/emulated/), as many at once as there are cores.
# Then what the bundled model writes there and on the host, how far a healing comes, and the operations of a mixture. $APR_EMULATED_ORDER
# says in which order a kernel's threads take turns. Nothing may be skipped here.
bin=$1
shift
here=$(dirname "$0")
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
export work bin OMP_NUM_THREADS=1

cat >"$work/same_text" <<'END'
#!/bin/sh
write() { "$bin/aprrun" --device "$1" tests/data/tiny-qwen2 -n 12 -p 'In the beginning God created'; }
on_host=$(write host) && on_device=$(write cuda) && printf '%s\n' "the host:$on_host" "device:  $on_device"
[ -n "$on_host" ] && [ "$on_host" = "$on_device" ]
END
# Which codes turn is decided at ties, so the last bits of a gradient change what is reached. Small steps keep that small: on the host, 7
# rates within 1 % of this one reach divergences within 0.45 %, and turn 12991 to 13115 codes (at ten times the rate, with half the tokens,
# 2.7 %, and the fall may be less than two standard errors, which refuses the file). Here the divergence falls by 13.9 %. The start is what
# ldlq made, on the device by products that round to TF32: 0.11 % apart.
cat >"$work/same_healing" <<'END'
#!/bin/sh
head -c 6000 tests/data/heldout.txt >"$work/text" && tail -c 2000 tests/data/heldout.txt >"$work/judge"
heal() {
    "$bin/aprquant" --device "$1" --json --to q4_0 --method ldlq --calibration "$work/text" --tokens 256 --window 64 --rounds 0 \
        --heal --judge "$work/judge" --heal-steps 25 --heal-tokens 128 --heal-rate 0.1 tests/data/tiny-llama "$work/$1.gguf" >"$work/$1.json"
    echo "$?$(sed 's/.*"healing"//' "$work/$1.json" | grep -oE '"(judge_(before|after)|codes_turned)":[^,}]*' | cut -d: -f2 | tr '\n' ' ' | sed 's/^/ /')"
}
on_host=$(heal host); on_device=$(heal cuda)
printf '%s\n' "exit code, divergence before and after, codes turned" "the host: $on_host" "device:   $on_device"
grep -q '"planned_device_bytes"' "$work/cuda.json" && grep -q '"heal.writer_device"' "$work/cuda.json" && echo "$on_host $on_device" |
    awk 'function near(a, b, share) {return (a - b) ^ 2 < (share * a) ^ 2}
        function healed(code, before, after) {return code == 0 && after < 0.88 * before}
        NF != 8 {exit 1}
        {exit !(healed($1, $2, $3) && healed($5, $6, $7) && near($2, $6, 2e-3) && near($3, $7, 0.005) && near($4, $8, 0.01))}'
END
# Types are chosen by divergences of 1e-3, of which the device's own rounding changes the fourth digit: files of nearly one size and worth.
cat >"$work/same_target" <<'END'
#!/bin/sh
head -c 6000 tests/data/heldout.txt >"$work/target_text"
choose() {
    "$bin/aprquant" -q --device "$1" --json --target-bpw 4.6 --target-tokens 64 --window 32 --calibration "$work/target_text" \
        tests/data/tiny-llama "$work/target-$1.gguf" >"$work/target-$1.json"
    echo "$? $(grep -oE '"(kl_held|bytes|figures_measured)":[^,}]*' "$work/target-$1.json" | head -n 3 | cut -d: -f2 | tr '\n' ' ')"
}
on_host=$(choose host); on_device=$(choose cuda)
printf '%s\n' "exit code, divergence, bytes, trials" "the host: $on_host" "device:   $on_device"
echo "$on_host $on_device" | awk 'function near(a, b) {return (a - b) ^ 2 < (0.02 * a) ^ 2}
    NF != 8 {exit 1} {exit !($1 == 0 && $5 == 0 && near($2, $6) && near($3, $7) && $4 == $8)}'
END
# A mixture in Q4_K: sixteen tokens in one pass, whose products round to FP16, and single ones. Each operation is within its bound.
cat >"$work/same_experts" <<'END'
#!/bin/sh
sed -E 's/("(hidden|moe_intermediate)_size": *)[0-9]+/\1256/; s/("num_hidden_layers": *)[0-9]+/\11/' \
    tests/data/families-even/qwen3_moe/config.json >"$work/mixture.json"
"$bin/aprrun" parity -q --synthetic "$work/mixture.json" --dtype q4_k --device cuda 2>"$work/parity" >/dev/null
code=$?
grep operations "$work/parity" && [ $code -eq 0 ]
END
chmod +x "$work/same_text" "$work/same_healing" "$work/same_target" "$work/same_experts"
set -- "$@" "$work/same_text" "$work/same_healing" "$work/same_target" "$work/same_experts"
printf '%s\n' "$@" | xargs -P "$(nproc 2>/dev/null || echo 2)" -I{} sh -c 'name=$(basename "$1"); begin=$(date +%s)
    case $name in # what is asked for memory that only a driver counts is left out, and much of what is random
        gpu_small_gemm) args="quick q4_k q6_k" ;;
        gpu_codecs) args=quick ;;
        gpu_sequences) args="dense text" ;;
        gpu_session) args="the_driver_*" ;;
        *) args=$([ ! -f "tests/gpu/$name.cu" ] || echo quick) ;; # for the others a word is the pattern of what to run
    esac
    timeout "${LIMIT:-1800}" "$1" $args >"$work/$name.out" 2>&1; echo $? >"$work/$name.code"; echo $(($(date +%s) - begin)) >"$work/$name.time"' - {}
. "$here/counts.sh"
for t in "$@"; do
    name=$(basename "$t")
    code=$(cat "$work/$name.code" 2>/dev/null || echo 'nothing: it did not run')
    grep -vE '^\[ *(RUN|OK|=*|PASSED) *\]|^ *$' "$work/$name.out"
    if [ "$code" = 0 ] && ! grep -qE '^skipped: no device|Running 0 test' "$work/$name.out"; then
        count 1 0 0
    else
        count 0 1 0
        echo "$name failed with exit code $code"
    fi
    echo "$name: $(cat "$work/$name.time") s"
done
close_counts "GPU tests, emulated${APR_EMULATED_ORDER:+, $APR_EMULATED_ORDER}"
