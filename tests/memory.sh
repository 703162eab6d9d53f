#!/bin/sh
# memory.sh BUILD_DIR - converts and quantizes a checkpoint far larger than the limit on memory, and kills aprquant on the way.
# Prints the peak of anonymous memory of each command and fails above 128 MiB; fails when a killed run leaves a file.
# The checkpoint has random weights in the shape tests/data/shapes/synthetic-$SIZE.json. SIZE=660m is the default: 1.3 GB, which
# takes 2.7 GB of disk. SIZE=2b is 4 GB and takes 8 GB.
# With two threads, as CI has: each thread has buffers of its own (16 threads peak at 208 MiB).
OMP_NUM_THREADS=2
export OMP_NUM_THREADS
build=$1
size=${SIZE:-660m}
work=$build/memory
checkpoint=$work/checkpoint-$size
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
[ -d "$checkpoint" ] || "$build/bench_synth" "tests/data/shapes/synthetic-$size.json" "$checkpoint" || exit 1
echo "memory: a checkpoint of $(du -sm "$checkpoint" | cut -f1) MiB ($size)"
for command in "aprconv st2apr" "aprquant --to q8_0" "aprquant --to fp8" "aprquant --to q4_k_m"; do
    rm -f "$work/out.apr" # never two outputs at a time on the disk
    peak=$(peak_of "$build/"$command "$checkpoint" "$work/out.apr")
    check "$command" $?
    printf '%-24s peak of anonymous memory %6.1f MiB (limit 128)\n' "$command" "$(echo "${peak:-0}" | awk '{print $1 / 1024}')"
    [ "${peak:-0}" -gt 0 ] && [ "$peak" -le $limit_kib ] # 0: nothing was seen, so nothing is known
    check "$command stays under 128 MiB" $?
done
out_bytes=$(stat -c %s "$work/out.apr")
rm -f "$work/out.apr"

for share in 1 30 60 85; do # of the output's bytes, in percent
    "$build/aprquant" --to q4_k_m "$checkpoint" "$work/killed.apr" >/dev/null 2>&1 &
    pid=$! written=0
    while [ "${written:-0}" -lt $((out_bytes / 100 * share)) ] && kill -0 $pid 2>/dev/null; do
        sleep 0.01
        written=$(find /proc/$pid/fd -lname "$work_path/*(deleted)" -exec stat -Lc %s {} + 2>/dev/null) # it has no name yet
    done
    [ "${written:-0}" -gt 0 ] && kill -9 $pid 2>/dev/null
    check "it was writing when killed after $share % of the output" $?
    wait $pid 2>/dev/null
    [ ! -e "$work/killed.apr" ]
    check "no file under the final name when killed after $share % of the output" $?
    [ "$(ls -A "$work")" = "${checkpoint##*/}" ]
    check "nothing else is left when killed after $share % of the output" $?
done
rm -rf "$work"
echo "memory: $passed passed, $failed failed"
[ $failed -eq 0 ]
