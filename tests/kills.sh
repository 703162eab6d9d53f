#!/bin/sh
# kills.sh BUILD_DIR [KILLS [SIGNALS]] - runs of every kind of write, new and in place of an old one, are killed at random moments
# (1000 times) and sent other signals (200 times). Under the final name there is then nothing, the old one or a complete new one;
# neighbours are untouched; a signal that can be caught leaves nothing else, and what a kill leaves goes with the next run.
. "$(dirname "$0")/killing.sh"
kills=${2:-1000} signals=${3:-200}
n_killed=0 n_signalled=0 n_early=0 n_new=0 n_old=0 n_none=0 n_left=0
about() { echo "$kind $how: "; }

cp -r "$root/tests/data/tiny-qwen2" in && rm in/*.gguf in/golden.* && mkdir place && cp -r in place/neighbour && echo mine >place/notes || exit 2
for f in x.apr.part .x.apr.aprkit-0123456789abcdef x.json.part; do echo mine >"place/$f"; done
cp -r place place.kept
printf 'In the beginning God created the heaven and the earth.\n' >text

# name, final name, share of the kills in percent, command (OUT: the final name; FORCE: -f for an old one)
kinds='apr x.apr 20 aprconv st2apr FORCE in OUT
quantized x.apr 15 aprquant -t q8_0 FORCE in OUT
gguf x.gguf 15 aprconv convert FORCE in OUT
sharded x 25 aprconv convert --max-shard 200K FORCE in OUT
report x.json 15 aprquant -n -t q8_0 in unused.apr --report OUT
dump x 7 aprrun parity --positions 0 --layer 1 in --dump OUT
page x.html 3 aprrun verify -q --no-parity -n 1 in --ref in --text text --html OUT'

# Is the new one complete? Models and dumps byte for byte, reports from beginning to end (they say how long it took).
complete() {
    case $kind in
    report | page) [ "$(head -c 9 "place/$final")" = "$(head -c 9 "want/$final")" ] && [ "$(tail -c 8 "place/$final")" = "$(tail -c 8 "want/$final")" ] ;;
    dump) for f in place/$final/*; do [ ! -e "$f" ] || cmp -s "$f" "want/$final/${f##*/}" || return 1; done ;;
    *) diff -r "place/$final" "want/$final" >/dev/null 2>&1 ;;
    esac
}
put_old() { # what is there before: nothing, or an old one that may be replaced
    rm -rf "place/$final"
    [ $how = new ] || cp -r old/"$final" place/
}
run_it() {
    force=
    [ $how = new ] || force=-f
    set -- $(echo "$command" | sed "s|OUT|place/$final|; s|FORCE|$force|")
    env --default-signal=INT,QUIT "$@" >/dev/null 2>err </dev/null &
    pid=$!
}
judge() { # exit code
    if [ ! -e "place/$final" ]; then n_none=$((n_none + 1)); [ $how = new ] || bad "the old one is gone (exit code $1)"
    elif [ $how = old ] && diff -r "place/$final" "old/$final" >/dev/null 2>&1; then n_old=$((n_old + 1))
    elif complete; then n_new=$((n_new + 1))
    else bad "what is there is neither old nor complete (exit code $1)"; cp -r "place/$final" "/tmp/kills-$kind-$$" 2>/dev/null
    fi
    left=$(ls -A place | grep -c '\.aprkit-')
    left=$((left - 1)) # the neighbour of that name
    [ "$left" -eq 0 ] || n_left=$((n_left + left))
    [ "$left" -le 1 ] || bad "$left unfinished ones are left: $(ls -A place)"
    [ "$2" = KILL ] || [ "$left" -eq 0 ] || bad "$2 left $(ls -A place | grep aprkit)"
    rm -rf "place/$final.now" # never made
    diff -r place place.kept >changes 2>&1
    grep -vE "^Only in place: (\.?$final)" changes | grep -q . && bad "a neighbour changed: $(cat changes)"
}

# send SIGNAL... at random moments until so many were met alive; half of the moments near the end, where names are taken
send() { # how many, signal names
    wanted=$1 met=0
    shift
    for how in new old; do
        put_old
        at=$(now); run_it; wait $pid || { bad "exit code $?: $(cat err)"; return; }
        span=$(since "$at")
        quota=$((wanted / 2)) met=0 tries=0
        while [ $met -lt $quota ] && [ $tries -lt $((quota * 20 + 100)) ]; do
            tries=$((tries + 1))
            signal=$(echo "$@" | cut -d ' ' -f $((tries % $# + 1)))
            delay=$(moment $((tries % 2 ? 0 : span * 6 / 10)) "$span")
            put_old
            run_it
            sleep "$delay"
            kill -$signal $pid 2>/dev/null
            wait $pid 2>/dev/null
            code=$?
            # the span follows what else the machine has to do
            if [ $code -gt 128 ]; then met=$((met + 1)) span=$((span + span / 32))
            else n_early=$((n_early + 1)) span=$((span - span / 8)); [ $code = 0 ] || bad "exit code $code: $(cat err)"
            fi
            judge $code $signal
        done 2>/dev/null
        [ $signal = KILL ] && n_killed=$((n_killed + met)) || n_signalled=$((n_signalled + met))
        [ $met -eq $quota ] || bad "only $met of $quota were met alive"
        put_old; run_it; wait $pid || bad "the next run fails: $(cat err)"
        [ "$(ls -A place | grep -c '\.aprkit-')" -eq 1 ] || bad "the next run leaves $(ls -A place)"
    done
}

exec 3<<K
$kinds
K
while read -r kind final share command <&3; do
    rm -rf old want && mkdir old want
    how=new; put_old; run_it; wait $pid || { bad "exit code $?: $(cat err)"; continue; }
    mv "place/$final" want/
    case $kind in # something else of the same kind
    apr | quantized) aprquant -t q4_0 in old/$final ;;
    gguf) aprquant -t q4_0 in old/$final ;;
    sharded) aprquant -t f16 in old/$final ;;
    *) cp -r want/$final old/ ;;
    esac >/dev/null || bad "no old one"
    before=$n_killed
    send $((kills * share / 100)) KILL
    send $((signals * share / 100)) HUP INT TERM QUIT XCPU PIPE USR1 ALRM
    rm -rf "place/$final"
    echo "$kind: $((n_killed - before)) killed"
done
echo "kills: $n_killed killed, $n_signalled ended by other signals, $n_early were through; under the final name: $n_none nothing, $n_old old, $n_new new; $n_left unfinished folders left by kills and removed by the next run; $failed failed"
[ $failed -eq 0 ] && [ $n_killed -gt 0 ]
