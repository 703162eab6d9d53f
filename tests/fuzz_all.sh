#!/bin/sh
# fuzz_all.sh FUZZ FINDS_DIR [-s SECONDS] [-r RUNS] [-j JOBS] [TARGET...] - runs fuzz targets and prints a table.
#
#   -s   seconds for each target (60), of CPU where there are cores for all jobs; -r: executions for each target (no limit); whichever comes first ends it
#   -j   processes at a time (as many as there are cores): a target's seconds and runs are split over that many parts, which
#        read each other's corpus
# FUZZ is the program of all targets (make fuzz-build); a TARGET begins from tests/corpus/TARGET, by default each does. What
# they learn is kept in FINDS_DIR/corpus, finds in FINDS_DIR/TARGET-crash-..., what they say in FINDS_DIR/log. False when there
# is a find, or when a target did not run. Needs nothing but FUZZ with its lib/ and tests/: both can be copied elsewhere.
usage() { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
[ $# -ge 2 ] || usage
here=$(dirname "$0")
fuzz=$1 finds=$2 seconds=60 runs=-1 jobs=$(nproc 2>/dev/null || echo 2)
shift 2
while getopts s:r:j: option; do
    case $option in
    s) seconds=$OPTARG ;;
    r) runs=$OPTARG ;;
    j) jobs=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- $("$fuzz" --list)
mkdir -p "$finds/log" || exit 2

part_seconds=$(((seconds + jobs - 1) / jobs)) part_runs=$runs
[ "$runs" -lt 0 ] || part_runs=$(((runs + jobs - 1) / jobs))
run_part='
    target=${0%:*}
    mkdir -p "$finds/corpus/$target"
    "$fuzz" "$target" -max_total_time=$part_seconds -runs=$part_runs -rss_limit_mb=4096 -timeout=30 -print_final_stats=1 \
        -artifact_prefix="$finds/$target-" "$finds/corpus/$target" "$here/corpus/$target" >"$finds/log/$0" 2>&1
    echo "exit_code: $?" >>"$finds/log/$0"
    times >>"$finds/log/$0"'
export fuzz finds here part_seconds part_runs
# The parts have the cores: no threads inside a target.
OMP_NUM_THREADS=1 ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
export OMP_NUM_THREADS ASAN_OPTIONS
rm -f "$finds"/log/*
for target in "$@"; do
    for part in $(seq "$jobs"); do echo "$target:$part"; done
done | xargs -P "$jobs" -n 1 sh -c "$run_part"

bad=0
printf '%-14s %14s %12s %10s %6s\n' target executions 'CPU seconds' a\ second finds
for target in "$@"; do
    # executions, CPU seconds of all parts, executions a second, parts that did not end well
    set -- $(awk '
        /^stat::number_of_executed_units:/ {n += $2}
        function of_time(t) {split(t, part, /[ms]/); return 60 * part[1] + part[2]}
        /^exit_code:/ {bad += $2 != 0; ended = FNR}
        ended && FNR == ended + 2 {s += of_time($1) + of_time($2)} # times: the second line is that of the children
        FNR == 1 {ended = 0}
        END {printf "%.0f %.0f %.0f %d", n, s, n / (s > 0 ? s : 1), bad}' "$finds/log/$target:"* 2>/dev/null)
    n_finds=$(ls "$finds" | grep -cE "^$target-(crash|leak|oom|timeout|slow-unit)-")
    [ "$n_finds" -gt 0 ] || n_finds=$4
    printf '%-14s %14s %12s %10s %6s\n' "$target" "$1" "$2" "$3" "$n_finds"
    if [ "$n_finds" -gt 0 ] || [ "$1" = 0 ]; then bad=1; fi
done
[ $bad -eq 0 ] || echo "finds are in $finds, what was said in $finds/log; replay one with: $fuzz TARGET FILE"
exit $bad
