#!/bin/sh
# resume.sh BUILD_DIR [KILLS] - outputs that several runs make. Runs with --resume are ended at random moments (200 times, by SIGKILL,
# SIGTERM and SIGINT) and go on until they are through: the same bytes as in one run, nothing else left. Parts are made in any order,
# twice, side by side and killed; journals are cut, garbled and lied to; other inputs, recipes and second processes are refused.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
kills=${2:-200}
case $build in *asan*) kills=${2:-40} ;; esac # sanitized programs take several times as long
PATH=$build:$PATH
export PATH OMP_NUM_THREADS=2
umask 022
work=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) || exit 2 # nothing here asks whether disks are fast
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
. "$root/tests/counts.sh"
step=
good() { count 1 0 0; }
bad() { count 0 1 0; echo "FAILED $step: $*"; }
holds() { if "$@"; then good; else bad "not so: $*"; fi; }
equal() { if diff -r "$1" "$2" >/dev/null 2>&1; then good; else bad "$1 is not $2"; fi; }
gone() { for f; do if [ ! -e "$f" ]; then good; else bad "$f exists"; fi; done; }

# answers CODE WORDS COMMAND...: the exit code; for a failure one sentence with these words, on stderr or in the JSON
answers() {
    wanted=$1 words=$2
    shift 2
    timeout 60 "$@" >out 2>err </dev/null
    code=$?
    if [ $code -ne "$wanted" ]; then
        bad "$*: exit code $code, not $wanted: $(head -c 300 err)"
    elif [ -n "$words" ] && { [ "$(cat out err | wc -l)" -ne 1 ] || ! cat out err | grep -qE "(^apr[a-z]*: |\"error\":\").*$words"; }; then
        bad "$*: '$(cat out err | head -c 400)' is not a sentence with '$words'"
    else
        good
    fi
}
taken() { sed -n 's/.*"taken_over":\([0-9]*\),"made".*/\1/p' out; }
made() { sed -n 's/.*"made":\([0-9]*\),.*/\1/p' out; }

mkdir in && cp "$root/tests/data/tiny-qwen2/"*.json "$root/tests/data/tiny-qwen2/model.safetensors" in/ && rm in/golden.json || exit 2
kinds='apr x.apr aprquant -t q4_k_m
gguf x.gguf aprquant -t q8_0 --tensor v_proj=q5_1
folder x aprquant -t fp8 --max-shard 200K
copy y.gguf aprconv convert'

# --- killed at random moments ---

n_killed=0 n_through=0 n_taken=0
moment() { od -An -N4 -tu4 /dev/urandom | awk -v span="$1" '{printf "%.4f", $1 / 4294967296 * span / 1e6}'; }

# What was ended after it had taken its name is complete; another run sees that, or finds nothing left to do.
come_to_the_end() {
    "$@" --resume in "$name" >out 2>err
    code=$?
    [ $code -eq 0 ] || { [ $code -eq 3 ] && grep -q 'exists already' err; } || bad "exit code $code: $(head -c 300 err)"
    equal "$name" "want/$name"
    gone "$name.resume/terms"
    rm -rf "$name" "$name.resume"
}

# Ends runs until so many were met alive; a run that is met too late has made the output, which is compared and made once more.
kill_often() { # how many, name, command
    quota=$1 name=$2 met=0 tries=0
    shift 2
    at=$(date +%s%N)
    "$@" --resume in want-resumed-"$name" >/dev/null 2>err || bad "exit code $?: $(cat err)"
    span=$((($(date +%s%N) - at) / 1000)) # follows what else the machine has to do
    rm -rf want-resumed-"$name"
    while [ $met -lt "$quota" ] && [ $tries -lt $((quota * 20)) ]; do
        tries=$((tries + 1))
        case $((tries % 3)) in 0) signal=TERM ;; 1) signal=KILL ;; *) signal=INT ;; esac
        env --default-signal=INT,TERM "$@" --json --resume in "$name" >out 2>err </dev/null &
        pid=$!
        sleep "$(moment "$span")"
        kill -$signal $pid 2>/dev/null
        wait $pid 2>/dev/null
        code=$?
        if [ $code -gt 128 ]; then
            met=$((met + 1)) span=$((span + span / 32))
            [ ! -e "$name" ] || come_to_the_end "$@"
        elif [ $code -eq 0 ]; then
            span=$((span - span / 8)) n_through=$((n_through + 1)) n_taken=$((n_taken + $(taken)))
            equal "$name" "want/$name"
            gone "$name.resume"
            rm -rf "$name"
        else
            bad "exit code $code: $(head -c 300 err)"
            rm -rf "$name" "$name.resume"
        fi
        [ -z "$(find . -name '.*aprkit-*')" ] || bad "$signal leaves $(find . -name '.*aprkit-*')"
    done 2>/dev/null
    n_killed=$((n_killed + met))
    come_to_the_end "$@"
}

mkdir want
n_kinds=$(echo "$kinds" | wc -l)
exec 3<<K
$kinds
K
while read -r kind name command <&3; do
    step="$kind, killed"
    $command in "want/$name" >/dev/null 2>err || bad "exit code $?: $(cat err)"
    kill_often $(((kills + n_kinds - 1) / n_kinds)) "$name" $command
    rm -rf "$name"
done
step="all kinds, killed"
holds [ $n_killed -ge "$kills" ]
[ "$kills" -lt 100 ] || holds [ $n_taken -gt 0 ] # otherwise nothing was met in the middle of its work

# --- killed while one tensor was half written ---

step="a tensor, killed in its middle"
numbers=8388608 sixteen='0123456789:;<=>?'
mkdir half && {
    header="{\"model.big.weight\":{\"dtype\":\"BF16\",\"shape\":[$((numbers / 1024)),1024],\"data_offsets\":[0,$((2 * numbers))]}}"
    printf "\\$(printf %03o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" # fewer than 256 bytes
    head -c $((2 * numbers)) /dev/urandom | LC_ALL=C tr '\000-\377' \
        "$(for _ in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do printf %s "$sixteen"; done)" # small numbers
} >half/model.safetensors
slowly='env OMP_NUM_THREADS=1 aprquant --json --cpu plain -t q4_k'
written() { LC_ALL=C tr -d '\0' 2>/dev/null <half.apr.resume/data | head -c "$1" | wc -c; }
answers 0 '' $slowly half/model.safetensors want/half.apr
met=0
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    : >out
    $slowly --resume half/model.safetensors half.apr >/dev/null 2>&1 </dev/null & pid=$!
    while kill -0 $pid && [ "$(written 65536)" -lt 65536 ]; do :; done
    kill -KILL $pid
    wait $pid
    halves=$(written 65536) whole=no
    ! cmp -s half.apr.resume/data want/half.apr || whole=yes
    [ -e half.apr ] || answers 0 '' $slowly --resume half/model.safetensors half.apr
    [ "$(made)" = 1 ] && met=1 && break
    rm -rf half.apr half.apr.resume # the tensor was through: once more
done 2>/dev/null
holds [ $met = 1 ] # what was not finished is made again, from its beginning
holds [ "$halves $whole $(taken)" = '65536 no 0' ]
equal half.apr want/half.apr
gone half.apr.resume
rm -rf half half.apr want/half.apr

# --- parts ---

quant='aprquant --json -t q4_k_m'
step="parts in any order, twice, and once more after a kill"
for k in 4 2 2 1; do answers 0 '' $quant --part $k/4 in x.apr; done
answers 1 'run these parts: 3/4"' $quant --finish in x.apr
gone x.apr
($quant --part 3/4 in x.apr >/dev/null 2>&1 & pid=$!; sleep 0.01; kill -KILL $pid; wait $pid) 2>/dev/null
answers 0 '' $quant --part 3/4 in x.apr
answers 0 '' $quant --finish in x.apr
holds [ "$(taken)" = 26 ]
equal x.apr want/x.apr
gone x.apr.resume
answers 3 'exists already' $quant --part 1/4 in x.apr
answers 3 'the output is complete' $quant --finish in x.apr
rm x.apr

step="parts side by side"
for name in x.apr x.gguf x; do
    command=$(echo "$kinds" | sed -n "s/^[a-z]* $name //p")
    for k in 1 2 3 4 5 6 7 8 9; do $command --part $k/9 in $name >out.$k 2>&1 & done
    wait
    answers 0 '' $command --finish in $name
    equal $name "want/$name"
    gone $name.resume
    rm -rf $name
done

step="more parts than tensors"
for k in $(seq 40); do aprquant -t q4_k_m --part $k/40 in x.apr >/dev/null || bad "part $k"; done
answers 0 '' $quant --finish in x.apr
equal x.apr want/x.apr
rm x.apr

step="what runs before found out is not forgotten"
answers 0 '' aprquant -t q8_0 in once.apr --report once.json
for k in 1 2 3; do answers 0 '' aprquant -t q8_0 --part $k/3 in x.apr --report part.json; done
answers 0 '' aprquant -t q8_0 --finish in x.apr --report again.json
figures() { sed 's/.*"tensors":\[//; s/,"taken_over":true//g' "$1"; }
holds [ "$(figures again.json)" = "$(figures once.json)" ]
holds grep -q '"rmse":' again.json
rm x.apr once.apr
printf '\110\000\000\000\000\000\000\000%s' '{"w.weight":{"dtype":"F32","shape":[2,32],"data_offsets":[0,256]}}      ' >wide.safetensors
i=0
while [ $i -lt 32 ]; do printf '\000\000\300\077\000\044\164\111'; i=$((i + 1)); done >>wide.safetensors
answers 0 '' aprquant --tensor '.*=f16' --saturate --part 1/1 wide.safetensors x.apr
answers 0 '' aprquant --tensor '.*=f16' --saturate --finish wide.safetensors x.apr
holds grep -q "warning: tensor 'w.weight' has 32 values too large for f16" out
rm x.apr
answers 5 "tensor 'w.weight': 32 of its 64 values" aprquant --tensor '.*=f16' --resume wide.safetensors x.apr
answers 5 "tensor 'w.weight': 32 of its 64 values" aprquant --tensor '.*=f16' --resume wide.safetensors x.apr # not done, and so refused again
rm -r x.apr.resume

step="a part whose bytes are not there"
for k in 1 2; do answers 0 '' $quant --part $k/2 in x.apr; done
printf 'other' | dd of=x.apr.resume/data bs=1 seek=$(($(stat -c %s x.apr.resume/data) - 3000)) conv=notrunc 2>/dev/null
answers 1 '1 of 26 tensors are missing \(1 of them were written, but have changed since\); run these parts: 2/2"' $quant --finish in x.apr
answers 0 '' $quant --part 2/2 in x.apr
holds grep -q '"made_anew":1,' out
answers 0 '' $quant --finish in x.apr
equal x.apr want/x.apr
rm x.apr

# --- journals, terms, locks ---

begun() { # a folder with some tensors made
    rm -rf x.apr x.apr.resume
    answers 0 '' $quant --part 1/2 in x.apr
    journal=$(ls x.apr.resume/*.journal)
}
step="a journal"
begun
n=$(($(wc -l <"$journal") - 1)) # the first line is a head
truncate -s -5 "$journal"
answers 0 '' $quant --part 1/2 in x.apr
holds [ "$(taken)" = $((n - 1)) ]
holds [ "$(made)" = 1 ]
begun
truncate -s 20 "$journal"
answers 0 '' $quant --part 1/2 in x.apr
holds [ "$(taken)" = 0 ]
for change in '2s/^[0-9]*/7/' '3s/#..../#0000/' '1s/journal/journey/' '2d;1d' '2s/$/ /' '3s/^.*$//'; do
    begun
    sed -i "$change" "$journal"
    answers 4 "$journal: line [0-9]+ is damaged" $quant --part 1/2 in x.apr
    answers 4 'is damaged' $quant --finish in x.apr
    gone x.apr
done
begun
echo 'parts 1' >x.apr.resume/terms
answers 3 'was started with 1 part, but this run has 2' $quant --part 1/2 in x.apr
echo >x.apr.resume/terms
answers 4 'does not begin with the number of parts' $quant --part 1/2 in x.apr

step="another input, another recipe"
begun
cp -r in other && printf '\001' | dd of=other/model.safetensors bs=1 seek=1900000 conv=notrunc 2>/dev/null
printf '\001\002\003' | dd of=other/model.safetensors bs=1 seek=$(($(stat -c %s other/model.safetensors) - 77)) conv=notrunc 2>/dev/null
answers 3 "started with 'input model.safetensors .*this run has 'input model.safetensors" $quant --part 1/2 other x.apr
cp in/model.safetensors other/ # 16 KiB of one tensor are another's
head -c 16384 /dev/urandom | dd of=other/model.safetensors bs=1 seek=$(($(stat -c %s in/model.safetensors) / 16 * 5 + 5000)) conv=notrunc 2>/dev/null
answers 3 "started with 'input model.safetensors .*this run has 'input model.safetensors" $quant --part 2/2 other x.apr
answers 3 "q6_k', but this run has '.*q8_0'" aprquant -t q8_0 --part 1/2 in x.apr
answers 3 "saturate no', but this run has 'saturate yes'" aprquant -t q4_k_m --saturate --part 1/2 in x.apr
answers 3 'started with 2 parts, but this run has 3' $quant --part 1/3 in x.apr
answers 3 'started with 2 parts, but this run has 1' $quant --resume in x.apr
holds [ -e "$journal" ]
cp in/model.safetensors other/ && rm other/generation_config.json # all inputs after it are the same, a line further up
answers 3 "started with 'input generation_config.json [^']*', but this run has 'output of" $quant --part 2/2 other x.apr
cp -r in elsewhere
answers 0 '' $quant --part 2/2 elsewhere x.apr # the same bytes, on a host that has them somewhere else
answers 0 '' $quant --finish in x.apr
equal x.apr want/x.apr
touch -d '2001-01-01' elsewhere/model.safetensors
rm x.apr
answers 3 'ulimit -f' sh -c 'ulimit -f 100; exec aprquant -t q4_k_m --resume elsewhere x.apr'
touch elsewhere/model.safetensors
answers 3 "input model.safetensors" $quant --resume elsewhere x.apr
rm -rf x.apr.resume

step="a folder of that name"
mkdir x.apr.resume && echo mine >x.apr.resume/notes
answers 3 "holds 'notes'" $quant --resume in x.apr
holds [ "$(cat x.apr.resume/notes)" = mine ]
rm -rf x.apr.resume
ln -s in x.apr.resume
answers 3 'x.apr.resume: ' $quant --resume in x.apr
rm x.apr.resume
echo older >x.apr
answers 3 'exists already' $quant --resume in x.apr
gone x.apr.resume
answers 0 '' $quant --resume -f in x.apr
equal x.apr want/x.apr
cp -r in old && cp old/config.json x.json
answers 3 "'thesis'" sh -c 'mkdir x && touch x/thesis && exec aprquant -t fp8 --max-shard 200K -f --resume in x'
rm x/thesis
answers 0 '' aprquant -t fp8 --max-shard 200K -f --resume in x
equal x want/x
rm -rf x.apr x

step="a private model stays private"
chmod 600 in/*
answers 0 '' $quant --part 1/1 in x.apr
holds [ "$(stat -c %a x.apr.resume)" = 700 ]
holds [ "$(stat -c %a x.apr.resume/data)" = 600 ]
answers 0 '' $quant --finish in x.apr
holds [ "$(stat -c %a x.apr)" = 600 ]
chmod 644 in/*
echo old >x.gguf && chmod 640 x.gguf
answers 0 '' $quant -f --resume in x.gguf
holds [ "$(stat -c %a x.gguf)" = 640 ]
answers 0 '' aprquant -t fp8 --resume in x
holds [ "$(stat -c '%a %a' x)" = '755 755' ]
rm -r x.apr x.gguf x

step="usage"
answers 2 'give only one of' $quant --resume --finish in x.apr
answers 2 'give only one of' $quant --resume --part 1/2 in x.apr
for p in 0/2 3/2 1 1/ /2 1/0 a/2 1/2x 1/100001 -1/2 '1 /2'; do answers 2 'takes K/N' $quant --part "$p" in x.apr; done
answers 2 'cannot be combined' $quant -n --resume in x.apr
answers 3 'no part was made' $quant --finish in x.apr
gone x.apr x.apr.resume
mkdir x.apr.resume # of a part that was killed before it had said what it makes
answers 3 'no part was made' $quant --finish in x.apr
rm -r x.apr.resume

step="a second process"
for how in '--resume' '--part 1/1'; do
    stopped=
    for try in $(seq 500); do # stop it while it holds the lock, which is not for long: where cores are busy, this shell goes first
        rm -rf x.apr x.apr.resume
        nice -n 19 $quant $how in x.apr >/dev/null 2>&1 &
        pid=$!
        while [ ! -e x.apr.resume/terms ] && kill -0 $pid 2>/dev/null; do :; done
        kill -STOP $pid 2>/dev/null
        [ ! -e x.apr.resume/terms ] || [ -e x.apr ] || { stopped=1 && break; }
        kill -CONT $pid 2>/dev/null
        wait $pid
    done
    holds [ -n "$stopped" ]
    answers 3 'another process is working there' $quant $how in x.apr
    kill -CONT $pid
    wait $pid
    holds [ $? = 0 ]
done
answers 0 '' $quant --finish in x.apr
equal x.apr want/x.apr

# --- begun by an older build ---

# tests/data/resume: folders that the build of commit c7d3665 (e: the first whose text has format 2) had begun of the model family qwen3, when it
# was ended: its terms, journals, data, and what error feedback keeps (the text and the sums). A change of any of these formats is seen here.
mkdir older && cd older && make_family "$root/tests/data/families/qwen3" in >/dev/null || exit 2 # a GGUF has the folder's name in it
while read -r name finish command <&3; do
    step="$name, begun by an older build"
    tar -xzf "$root/tests/data/resume/$name.resume.tar.gz"
    n=$(cat "$name".resume/*.journal | grep -c '^[0-9]')
    sed -n 's/^input \(.*\) of [0-9]* bytes, .*, of \([0-9.]*\)$/\2 \1/p' "$name.resume/terms" | # of one run, the terms have its inputs' times
        while read -r time file; do touch -d "@$time" "in/$file"; done
    if [ "$finish" = parts ]; then
        for k in 1 3; do answers 0 '' $command --json --part $k/3 in "$name"; done
        answers 0 '' $command --json --finish in "$name"
        holds [ "$(taken)" -gt "$n" ]
    else
        answers 0 '' $command --json --resume in "$name"
        holds [ "$(taken)" = "$n" ]
    fi
    holds [ "$n" -gt 0 ]
    answers 0 '' $command in "once-$name"
    equal "$name" "once-$name"
    gone "$name.resume"
done 3<<K
a.apr parts aprquant -t q4_k_m
b.gguf parts aprquant -t q8_0
c parts aprquant -t fp8 --max-shard 1M
d.gguf parts aprconv convert
e.gguf run aprquant -q --method ldlq --window 128 --tokens 4096 --rounds 40 -t q4_k_m
K
cd .. || exit 2

echo "resume: $n_killed runs ended by signals, $n_through went through, which had taken over $n_taken tensors"
close_counts 'tests of several runs'
