#!/bin/bash
# same_outputs.sh [-v] OLD_BUILD NEW_BUILD [MODEL...] - runs both builds' tools over every conversion, type, mixture, shape and
# answer, and compares what they write and say, byte for byte: files, stdout, stderr and exit codes. Only times and rates are
# left out. Prints a table (tool, cases, same, different), each difference above it, and is false when there is one.
#
# MODEL: a .gguf, a checkpoint or an .apr file; by default all of tests/data, and each of tests/data/families made by
# NEW_BUILD/make_family. Each case runs in an empty folder of its own name, so that both say the same paths. -v names the cases.
cd "$(dirname "$0")/.." || exit 2
verbose=
[ "$1" != -v ] || { verbose=1; shift; }
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
old=$(cd "$1" && pwd) && new=$(cd "$2" && pwd) || exit 2
shift 2
data=$PWD/tests/data
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} TZ=UTC

models=$work/models
mkdir "$models"
if [ $# -gt 0 ]; then
    for m in "$@"; do ln -s "$(realpath "$m")" "$models/" || exit 2; done
else
    ln -s "$data"/tiny-* "$data"/tiny-qwen2/*.gguf "$data"/gguf/*.gguf "$data"/*.gguf "$data"/*.safetensors "$models/"
    for f in "$data"/families/*/; do "$new/make_family" "$f" "$models/$(basename "$f")" || exit 2; done
fi

# times "0.05 s, 65.22 MiB/s", "seconds":0.05, tokens a second
no_times() { sed -E 's|[0-9.]+ s, [0-9.]+ [KMGT]?i?B/s|TIME|; s/"[a-z_]*(seconds|per_second)": ?[0-9.e+-]+/"TIME"/g; s|[0-9.]+ (tokens?/s\|s\b)|TIME|g' "$1"; }
# What a folder holds: sums of files, by name.
sums() { (cd "$1" && find . -type f -exec sha256sum {} + | sort -k 2); }

# compare TOOL COMMAND - the command in an empty folder with models/ and data/, once with each build first in PATH.
n_cases=0
compare() {
    local tool=$1 command=$2 side
    for side in old new; do
        rm -rf "$work/$side" "$work/case"
        mkdir -p "$work/case/out" "$work/$side"
        ln -s "$models" "$work/case/models" && ln -s "$data" "$work/case/data"
        (cd "$work/case" && PATH=${!side}:$PATH timeout 300 bash -c "$command") >"$work/$side/stdout" 2>"$work/$side/stderr" </dev/null
        echo $? >"$work/$side/exit"
        no_times "$work/$side/stdout" >"$work/$side/said"
        no_times "$work/$side/stderr" >>"$work/$side/said"
        for f in "$work"/case/out/*.report; do [ ! -f "$f" ] || { no_times "$f" >"$f.said" && rm "$f"; }; done
        sums "$work/case/out" >"$work/$side/files"
    done
    n_cases=$((n_cases + 1))
    local what=
    for f in exit said files; do cmp -s "$work/old/$f" "$work/new/$f" || what="$what $f"; done
    [ -z "$verbose" ] || echo "$tool: $command: exit $(cat "$work/new/exit"), $(wc -l <"$work/new/files") files${what:+, DIFFERENT:$what}"
    if [ -z "$what" ]; then echo "$tool same" >>"$work/tally"; else
        echo "$tool different" >>"$work/tally"
        echo "$tool: $command:$what differ"
        for f in $what; do diff "$work/old/$f" "$work/new/$f" | head -n 6 | cut -c 1-200; done
    fi
}

types=$("$old/aprquant" --list | awk '{print $1}')
for path in "$models"/*; do
    m=models/$(basename "$path")
    for to in a.apr a.gguf a; do
        compare 'aprconv convert' "aprconv convert $m out/$to"
        compare 'aprconv convert --allow-loss' "aprconv convert --allow-loss --json $m out/$to"
        compare 'aprconv convert --dry-run' "aprconv convert --dry-run $m out/$to"
        compare 'aprconv back' "aprconv convert --allow-loss -q $m $to && for b in b.apr b.gguf b; do aprconv convert --allow-loss $to out/\$b; done"
    done
    compare 'aprconv profile' "aprconv convert --profile aprender --allow-loss $m out/a.apr"
    for verb in show check; do compare "aprconv $verb" "aprconv $verb $m"; compare "aprconv $verb" "aprconv $verb --json $m"; done
    compare 'aprconv diff' "aprquant -q --allow-requantize --to q8_0 $m a.apr; aprconv diff $m a.apr; aprconv diff --json a.apr $m"
    for type in $types; do
        compare 'aprquant' "aprquant --allow-requantize --to $type --report out/r.report $m out/a.apr"
        compare 'aprquant to gguf' "aprquant --allow-requantize --allow-loss --json --to $type $m out/a.gguf"
        compare 'aprquant to safetensors' "aprquant --allow-requantize --allow-loss --to $type $m out/a"
        compare 'aprquant --dry-run' "aprquant --allow-requantize --dry-run --to $type $m out/a.apr"
    done
    compare 'aprplan' "aprplan --vram 64M --json $m; aprplan --host $m; aprplan --gpu h200 --kv q8_0 $m"
    compare 'aprrun' "aprrun $m -p 'In the beginning' -n 8; aprrun $m --json --device ref -p 'In' -n 2"
done
for shape in "$data"/shapes/*.json; do
    s=data/shapes/$(basename "$shape")
    compare 'aprplan shapes' "aprplan --gpu rtx5090 $s; aprplan --gpu h200 --json $s; aprplan --host -c 32768 -s 4 $s; aprplan --gpu l4 --no-direct --kv fp8 $s"
    for type in $types; do compare 'aprplan shapes --dtype' "aprplan --gpu h200 --dtype $type $s; aprplan --host --json --dtype $type $s"; done
    compare 'aprconv show' "aprconv show $s; aprconv show --json $s"
done
for tool in aprconv aprquant aprplan aprrun; do compare 'help' "$tool --help; $tool --version; $tool --help --json"; done
compare 'lists' "aprquant --list; aprquant --list --json; aprplan --list-gpus; aprplan --list-gpus --json"

printf '\n%-30s %8s %8s %10s\n' tool cases same different
sort "$work/tally" | awk '{k = $0; sub(/ [a-z]*$/, "", k); n[k]++; if ($NF == "same") same[k]++; else all_bad++; all++}
    END {for (k in n) printf "%-30s %8d %8d %10d\n", k, n[k], same[k], n[k] - same[k] | "sort"; close("sort"); printf "%-30s %8d %8d %10d\n", "all", all, all - all_bad, all_bad}'
! grep -q ' different$' "$work/tally"
