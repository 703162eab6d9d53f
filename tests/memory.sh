#!/bin/sh
# Constant memory and no half-written file: a 4 GB checkpoint converted and quantized, and killed on the way.
# usage: memory.sh BUILD_DIR. Needs about 9 GB of disk. Prints the peak of anonymous memory; fails above 128 MiB.
build=$1
work=$build/memory
limit_kib=$((128 * 1024))
passed=0 failed=0
check() { # text, condition's exit code
    if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $1"; fi
}

# Runs a command and prints the largest RssAnon seen, in KiB (sampled 50 times a second).
peak_of() {
    "$@" >/dev/null &
    pid=$! peak=0
    while kill -0 $pid 2>/dev/null; do
        now=$(awk '/^RssAnon/ {print $2}' /proc/$pid/status 2>/dev/null)
        [ -n "$now" ] && [ "$now" -gt "$peak" ] && peak=$now
        sleep 0.02
    done
    wait $pid || { echo "$* failed" >&2; return 1; }
    echo "$peak"
}

mkdir -p "$work" && work_path=$(cd "$work" && pwd -P) || exit 2
[ -d "$work/checkpoint" ] || "$build/bench_synth" tests/data/shapes/synthetic-2b.json "$work/checkpoint" || exit 1
for command in "aprconv st2apr -f" "aprquant --to q8_0 -f" "aprquant --to fp8 -f" "aprquant --to q4_k_m -f"; do
    peak=$(peak_of "$build/"$command "$work/checkpoint" "$work/out.apr")
    check "$command" $?
    printf '%-24s peak of anonymous memory %6.1f MiB (limit 128)\n' "$command" "$(echo "${peak:-0}" | awk '{print $1 / 1024}')"
    [ "${peak:-0}" -gt 0 ] && [ "$peak" -le $limit_kib ] # 0: nothing was seen, so nothing is known
    check "$command stays under 128 MiB" $?
done
size=$(stat -c %s "$work/out.apr")
rm -f "$work/out.apr"

for share in 1 30 60 85; do # of the output's bytes, in percent
    "$build/aprquant" --to q4_k_m "$work/checkpoint" "$work/killed.apr" >/dev/null 2>&1 &
    pid=$! written=0
    while [ "${written:-0}" -lt $((size / 100 * share)) ] && kill -0 $pid 2>/dev/null; do
        sleep 0.01
        written=$(find /proc/$pid/fd -lname "$work_path/*(deleted)" -exec stat -Lc %s {} + 2>/dev/null) # it has no name yet
    done
    [ "${written:-0}" -gt 0 ] && kill -9 $pid 2>/dev/null
    check "it was writing when killed behind $share % of the output" $?
    wait $pid 2>/dev/null
    [ ! -e "$work/killed.apr" ]
    check "no file under the final name when killed behind $share % of the output" $?
    [ "$(ls -A "$work")" = checkpoint ]
    check "nothing else is left when killed behind $share % of the output" $?
done
rm -rf "$work"
echo "memory: $passed passed, $failed failed"
[ $failed -eq 0 ]
