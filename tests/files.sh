#!/bin/sh
# files.sh BUILD_DIR - files, links, limits and signals, as a stranger meets them: every failure is one sentence and an exit code
# of the table, and nothing of the user's is lost. As root the tests of permissions run as another user, who may not be able to enter
# the checkout: that user runs copies of the tools.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
PATH=$build:$PATH
export PATH OMP_NUM_THREADS=2
export ASAN_OPTIONS="$ASAN_OPTIONS:handle_segv=0:handle_sigbus=0:handle_abort=0" # a sanitizer would take these signals
umask 022
work=$(mktemp -d) || exit 2
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
. "$root/tests/counts.sh"
step=
good() { count 1 0 0; }
bad() { count 0 1 0; echo "FAILED $step: $*"; }
cannot() { count 0 0 1; echo "not possible here: $*"; }
holds() { if "$@"; then good; else bad "not so: $*"; fi; }
same() { if cmp -s "$1" "$2"; then good; else bad "$1 is no longer $2"; fi; }
absent() { for f; do if [ ! -e "$f" ] && [ ! -L "$f" ]; then good; else bad "$f exists"; fi; done; }
clean() { if [ -z "$(find . -name '.*aprkit-*')" ]; then good; else bad "left over: $(find . -name '.*aprkit-*')"; fi; }
mode() { if [ "$(stat -c %a "$2")" = "$1" ]; then good; else bad "mode of $2 is $(stat -c %a "$2"), not $1"; fi; }

# answers CODE WORDS COMMAND...: the exit code; for a failure one sentence with these words. User: $as.
as=
answers() {
    wanted=$1 words=$2
    shift 2
    $as timeout 60 "$@" >"$work/o" 2>"$work/e" </dev/null
    code=$?
    if [ $code -ne "$wanted" ]; then
        bad "$*: exit code $code, not $wanted: $(head -c 300 "$work/e")"
    elif [ -n "$words" ] && { [ "$(wc -l <"$work/e")" -ne 1 ] || ! grep -qE "^apr[a-z]*: .*$words" "$work/e"; }; then
        bad "$*: '$(head -c 300 "$work/e")' is not a sentence with '$words'"
    else
        good
    fi
}

mkdir "$work/data" && cd "$work/data" || exit 2
for f in config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors; do
    mkdir -p ck && cp "$root/tests/data/tiny-llama/$f" ck/ || exit 2
done
aprconv convert "$root/tests/data/tiny-qwen2" m.gguf >/dev/null || exit 2
aprconv convert ck m.apr >/dev/null || exit 2
aprconv apr2st --max-shard 200K m.apr shards >/dev/null || exit 2
cp -r . "$work/kept"
start() { # a new folder with copies of all inputs
    step=$1
    rm -rf "$work/in" && cp -r "$work/kept" "$work/in" && cd "$work/in" || exit 2
}
kept="$work/kept"

start "files named like temporaries may be the user's"
mv ck ck.part && cp m.gguf m2.gguf.part
answers 0 '' aprconv convert ck.part ck
answers 0 '' aprquant -t q8_0 m2.gguf.part m2.gguf
same m2.gguf.part "$kept/m.gguf"
same ck.part/model.safetensors "$kept/ck/model.safetensors"
echo precious >p && ln -s p s.apr.part && ln p h.apr.part
answers 0 '' aprquant -t q8_0 m.gguf s.apr
answers 0 '' aprquant -t q8_0 m.gguf h.apr
holds [ "$(cat p)" = precious ]
holds [ ! -L s.apr ]
clean

start "an input is never the output"
ln m.gguf hard.gguf && ln -s m.gguf soft.gguf && ln -s ck way
for force in -q -f; do
    answers 2 'same file as the input' aprquant $force -t f16 m.gguf m.gguf
    answers 2 'same file as the input' aprquant $force -t f16 hard.gguf m.gguf
    answers 2 'same file as the input' aprquant $force -t f16 m.gguf ./hard.gguf
    answers 2 'same file as the input' aprquant $force -t f16 soft.gguf m.gguf
    answers 3 'is a symbolic link' aprquant $force -t f16 m.gguf soft.gguf
    answers 2 'holds the input' aprconv convert $force ck ck
    answers 2 'holds the input' aprconv convert $force ck/model.safetensors ck/
    answers 2 'holds the input' aprconv convert $force way/model.safetensors ck
    answers 3 'is a symbolic link' aprconv convert $force ck way
    answers 2 'holds the input' aprconv convert $force ck ../in
    answers 2 'not a name for a new folder' aprconv convert $force ck .
    answers 2 'not a name for a new folder' aprconv convert $force ck ck/..
done
answers 2 'same file' aprquant -n -t f16 m.gguf hard.gguf
answers 2 'holds the input' aprconv convert -n ck ck
cp ck/model.safetensors ck/adapter_model.safetensors
answers 2 'holds the input' aprquant -f -t f16 ck/model.safetensors ck
for f in ck/model.safetensors ck/config.json m.gguf hard.gguf; do same $f "$kept/$(echo $f | sed s/hard/m/)"; done
holds [ -e ck/adapter_model.safetensors ]
clean

start "a report, a page, a dump over something else"
for n in -q -n; do
    answers 2 'same file as the input' aprquant $n -t q8_0 m.gguf o.apr --report m.gguf
    answers 2 'same file as the input' aprquant $n -t q8_0 shards o.apr --report shards/model-00002-of-00004.safetensors
    answers 2 'same file as the input' aprquant $n -t q8_0 shards o.apr --report shards/model.safetensors.index.json
    answers 2 'same file as the input' aprquant $n -t q8_0 ck o.apr --report ck/tokenizer.json
    for f in vocab.json README.md extra_config.json; do
        answers 2 'part of the checkpoint' aprquant $n -t q8_0 ck o.apr --report ck/$f
        absent ck/$f
    done
    answers 2 'two outputs of this run' aprquant $n -t q8_0 ck o.apr --report ./o.apr
    answers 3 'exists already and is something else' aprquant $n -f -t q8_0 ck o.apr --report m.apr
    answers 3 'No such file' aprquant $n -t q8_0 ck o.apr --report no/report.json
    answers 3 'is a folder' aprquant $n -t q8_0 ck o.apr --report shards
    absent o.apr
done
answers 2 'would be in' aprconv convert -f m.apr shards --report shards/r.json
answers 2 'same file as the input' aprrun verify m.apr --ref ck --html m.apr
answers 2 'same file as the input' aprrun verify m.apr --ref ck --html ck/model.safetensors
answers 3 'exists already and is something else' aprrun verify m.apr --ref ck --html m.gguf
answers 3 'No such file' aprrun verify m.apr --ref ck --html no/page.html
answers 2 'same file as the input' aprrun bench ck -p 1 -n 1 --html ck/model.safetensors
answers 3 'exists already and is something else' aprrun bench ck -p 1 -n 1 --html m.gguf
answers 3 'No such file' aprrun bench ck -p 1 -n 1 --html no/page.html
answers 3 'is a regular file|is a file, not a folder' aprrun parity --positions 0 m.apr --dump m.gguf
answers 2 'part of the checkpoint' aprrun parity --positions 0 ck --dump ck
mkfifo fifo
answers 3 'is a FIFO' aprquant -t q8_0 m.gguf o.apr --report fifo
answers 3 'is a device' aprquant -t q8_0 m.gguf o.apr --report /dev/null
answers 3 'is a symbolic link' aprquant -t q8_0 m.gguf o.apr --report /dev/stdout
answers 0 '' aprquant -n -t q8_0 m.gguf o.apr --report r.json
holds grep -q '"dry_run":true' r.json
answers 0 '' aprquant -t q8_0 m.gguf o.apr --report r.json
holds grep -q '"dry_run":false' r.json
for f in m.gguf m.apr shards/model-00002-of-00004.safetensors shards/model.safetensors.index.json ck/tokenizer.json; do same $f "$kept/$f"; done
clean

start "what is not a file is not waited for"
mkfifo fifo.gguf fifo.apr && mkdir dir.apr && ln -s fifo.gguf link.gguf && ln -s nowhere dangling.apr
answers 3 'is a FIFO' aprconv show fifo.gguf
answers 3 'is a FIFO' aprconv check link.gguf
answers 3 'is a FIFO' aprquant -f -t q8_0 m.gguf fifo.apr
answers 3 'is a device' aprconv show /dev/zero
answers 3 'is a symbolic link' aprquant -f -t q8_0 m.gguf dangling.apr
mv ck/config.json c && mkfifo ck/config.json
answers 3 'is a FIFO' aprconv show ck
rm shards/model-00003-of-00004.safetensors && mkfifo shards/model-00003-of-00004.safetensors
answers 3 'is a FIFO' aprconv check shards
[ "$(id -u)" = 0 ] && mknod dev.apr c 1 3 2>/dev/null && answers 3 'is a device' aprquant -f -t q8_0 m.gguf dev.apr && holds [ -c dev.apr ]
absent nowhere
clean

start "-f replaces what was ours"
cp -r ck out && echo years >out/thesis.txt
answers 3 "exists already" aprconv convert m.apr out
answers 3 "'thesis.txt'" aprconv convert -f m.apr out
holds [ "$(cat out/thesis.txt)" = years ]
same out/model.safetensors "$kept/ck/model.safetensors"
mv out/thesis.txt out/adapter_model.safetensors
answers 3 "'adapter_model.safetensors'" aprconv convert -f m.apr out
rm out/adapter_model.safetensors && echo x >out/model-00001-of-00009.safetensors
chmod 750 out && chmod 600 out/config.json
answers 0 '' aprconv convert -f m.apr out
absent out/model-00001-of-00009.safetensors
mode 750 out
mode 600 out/config.json
echo old >o.gguf && chmod 664 o.gguf && ln o.gguf other
answers 3 'exists already; give --force' aprconv convert m.apr o.gguf
answers 0 '' aprconv convert -f m.apr o.gguf
mode 664 o.gguf
holds [ "$(cat other)" = old ]
mkdir folder.gguf
answers 2 'OUT must end in .gguf' aprconv apr2gguf -f m.apr folder.gguf
clean

start "a private model stays private"
chmod 600 m.gguf ck/*
answers 0 '' aprquant -t q8_0 m.gguf private.apr --report private.json
mode 600 private.apr
mode 600 private.json
answers 0 '' aprconv convert --max-shard 200K ck private
mode 700 private
mode 600 private/model-00001-of-00004.safetensors
mode 600 private/config.json
(umask 077 && aprquant -t q8_0 m.apr masked.apr >/dev/null) && mode 600 masked.apr

start "limits"
answers 3 'ulimit -f' sh -c 'ulimit -f 50; exec aprquant -t f16 m.gguf x.apr'
answers 3 'ulimit -f' sh -c 'ulimit -f 50; exec aprconv convert m.apr x'
if ldd "$build/aprrun" | grep -q libomp; then cannot "limits that LLVM's OpenMP answers by ending the program"; else
answers 3 'File too large' sh -c 'ulimit -f 1; exec aprquant -n -t f16 m.gguf x.apr --report r.json'
absent x.apr x r.json
for t in 'aprconv check' 'aprconv check --json' 'aprrun -p x -n 1'; do
    OMP_STACKSIZE=100000G OMP_NUM_THREADS=4 timeout 60 $t m.gguf >o 2>e
    holds [ $? = 6 ]
    case $t in *json) holds grep -q '^{"ok":false,.*"exit":6,"error":".*threads.*"}$' o ;; *) holds grep -q '^apr[a-z]*: .*threads' e ;; esac
done
absent x.apr
holds sh -c 'OMP_STACKSIZE=100000G OMP_NUM_THREADS=4 exec aprquant -q -t q8_0 m.gguf x.apr >o 2>e' # its threads are not OpenMP's
fi
rm -f x.apr
aprconv show m.gguf >/dev/full 2>e
holds [ $? = 3 ]
aprconv show m.gguf >&- 2>e
holds [ $? = 3 ]
clean

start "two writers"
for i in 1 2 3; do
    rm -rf o.apr folder
    aprquant -q -t q8_0 m.gguf o.apr >/dev/null 2>e1 & a=$!
    aprquant -q -t q5_0 m.gguf o.apr >/dev/null 2>e2; b=$?
    wait $a; a=$?
    holds [ "$((a * b))" = 0 ] # one at least has done it
    for code in $a $b; do case $code in 0 | 3) good ;; *) bad "exit code $code" ;; esac; done
    [ $a = 0 ] || holds grep -qE 'exists' e1
    [ $b = 0 ] || holds grep -qE 'exists' e2
    answers 0 '' aprconv check o.apr
    aprconv convert -q --max-shard 100K m.apr folder >/dev/null 2>e1 & a=$!
    aprconv convert -q ck folder >/dev/null 2>e2; b=$?
    wait $a; a=$?
    holds [ "$((a * b))" = 0 ]
    [ $a = 0 ] || holds grep -qE 'exists|another process' e1
    [ $b = 0 ] || holds grep -qE 'exists|another process' e2
    answers 0 '' aprconv check folder
    aprquant -q -f -t q8_0 m.gguf o.apr >/dev/null 2>e1 & a=$!
    aprquant -q -f -t q5_0 m.gguf o.apr >/dev/null 2>e2; b=$?
    wait $a; a=$?
    holds [ "$((a * b))" = 0 ]
    answers 0 '' aprconv check o.apr
done
clean

# held FILE COMMAND...: starts it and stops it (SIGSTOP) when it has mapped FILE. $pid; false when it was too quick.
maps() { # PID FILE, without another process
    while read -r line; do case $line in */"$2") return 0 ;; esac; done 2>/dev/null </proc/$1/maps
    return 1
}
held() {
    mapped=$1
    shift
    env --default-signal=INT,QUIT "$@" >o 2>e &
    pid=$!
    while [ -e /proc/$pid/maps ] && ! maps $pid "$mapped"; do
        read -r _ _ state _ 2>/dev/null </proc/$pid/stat && [ "$state" != Z ] || break
    done
    kill -STOP $pid 2>/dev/null && maps $pid "$mapped"
}
goes_on() { kill -CONT $pid; wait $pid 2>/dev/null; code=$?; }
# while_it_works DOING CODE WORDS FILE COMMAND...: tries until it was not too quick
while_it_works() {
    doing=$1 wanted=$2 words=$3 file=$4
    shift 4
    tries=0 code=none
    while [ $tries -lt 20 ] && [ "$code" != "$wanted" ]; do
        tries=$((tries + 1))
        rm -rf x.apr x xx.json && cp "$kept/$file" "$file"
        if held "$file" "$@"; then
            eval "$doing"
            goes_on
            [ $code = 0 ] || break
        else
            kill -KILL $pid; wait $pid
        fi 2>/dev/null
        rm -rf .*aprkit-* # of those killed here
    done
    if [ "$code" != "$wanted" ]; then bad "$doing, $*: exit code $code, not $wanted: $(cat e)"
    elif [ -n "$words" ] && ! grep -qE "$words" e o; then bad "$doing, $*: '$(cat e o)' does not say '$words'"
    else good
    fi
}

start "inputs that change"
cut='m.gguf: was (cut short|changed) by another program'
for t in 1 4; do
    export OMP_NUM_THREADS=$t
    while_it_works 'truncate -s 4096 m.gguf' 3 "aprquant: $cut" m.gguf aprquant -t q5_0 m.gguf x.apr
    absent x.apr
    while_it_works 'truncate -s 4096 m.gguf' 3 "^{\"ok\":false,.*\"exit\":3,\"error\":\"$cut" m.gguf aprconv check --json m.gguf
    while_it_works 'touch m.gguf' 3 'm.gguf: was changed by another program' m.gguf aprquant -t q5_0 m.gguf x.apr
    absent x.apr
done
while_it_works 'truncate -s 4096 m.gguf' 3 "aprconv: $cut" m.gguf aprconv convert m.gguf x.apr
absent x.apr
while_it_works 'printf x >>m.apr' 3 'm.apr: was changed by another program' m.apr aprconv convert m.apr x
absent x
while_it_works 'touch m.gguf' 3 'm.gguf: was changed by another program' m.gguf aprconv check m.gguf
while_it_works 'rm m.gguf' 0 '' m.gguf aprconv check m.gguf # what is mapped stays
export OMP_NUM_THREADS=2
clean

start "signals"
ulimit -c 0
for signal in HUP:129 INT:130 TERM:143 XCPU:152; do
    while_it_works "kill -${signal%:*} \$pid" ${signal#*:} '' m.apr aprconv convert --max-shard 100K m.apr x --report xx.json
    absent x xx.json
    clean
done
for signal in HUP:129 INT:130 QUIT:131 USR1:138 PIPE:141 ALRM:142 TERM:143 PROF:155 SEGV:139 ABRT:134 BUS:135; do
    while_it_works "kill -${signal%:*} \$pid" ${signal#*:} '' m.gguf aprquant -t q5_0 m.gguf x.apr
    absent x.apr
    clean
done
while_it_works "kill -XFSZ \$pid" 0 '' m.gguf aprconv check m.gguf # ignored: it is an error of writing
(trap '' HUP; while_it_works "kill -HUP \$pid" 0 '' m.gguf aprconv check m.gguf; exit $failed) # as under nohup
holds [ $? = $failed ]

start "another user"
other=
if [ "$(id -u)" != 0 ]; then other=env
elif setpriv --reuid=65534 --regid=65534 --clear-groups true 2>/dev/null; then other='setpriv --reuid=65534 --regid=65534 --clear-groups'
fi
if [ -z "$other" ]; then
    cannot "to be another user (setpriv)"
else
    [ "$(id -u)" != 0 ] || chown -R 65534:65534 .
    mkdir "$work/tools" && cp "$build/aprconv" "$build/aprquant" "$build/aprrun" "$work/tools/" || exit 2
    chmod 755 "$work/tools" "$work/tools"/*
    PATH=$work/tools:$PATH
    as=$other
    mkdir closed theirs && cp m.gguf closed/in.gguf && echo old >closed/old.gguf
    [ "$(id -u)" != 0 ] || chown 65534:65534 closed closed/*
    chmod 555 closed
    answers 3 'cannot write there: Permission denied' aprquant -t q8_0 m.gguf closed/o.apr
    answers 3 'cannot write there: Permission denied' aprquant -f -t q8_0 m.gguf closed/old.gguf
    answers 3 'cannot write there: Permission denied' aprconv convert m.apr closed/folder
    answers 3 'cannot write there: Permission denied' aprquant -t q8_0 m.gguf o.apr --report closed/r.json
    answers 3 'cannot write there: Permission denied' aprrun verify m.apr --ref ck --html closed/page.html
    answers 3 'Permission denied' aprrun parity --positions 0 m.apr --dump closed/dump
    absent o.apr
    answers 0 '' aprquant -t q8_0 closed/in.gguf o.apr
    chmod 000 m.gguf
    answers 3 'm.gguf: Permission denied' aprconv show m.gguf
    chmod 644 m.gguf
    if [ "$(id -u)" = 0 ]; then # what belongs to root, in a folder where anybody may write but only owners replace
        chown 0:0 theirs && chmod 1777 theirs && echo root >theirs/o.apr && chmod 666 theirs/o.apr
        answers 3 'belongs to another user' aprquant -f -t q8_0 m.gguf theirs/o.apr
        holds [ "$(cat theirs/o.apr)" = root ]
        answers 0 '' aprquant -t q8_0 m.gguf theirs/own.apr
        as=
        chmod 640 theirs/own.apr
        answers 0 '' aprquant -f -t q5_0 m.gguf theirs/own.apr
        holds [ "$(stat -c %u:%g:%a theirs/own.apr)" = 65534:65534:640 ] # root leaves it to its owner
    else
        cannot "to give files to another user (not root)"
    fi
    as=
    PATH=${PATH#"$work/tools:"}
    chmod 755 closed
fi
clean

start "a full disk"
mkdir small
for how in 'unshare -m' 'unshare -rm' none; do $how sh -c 'mount -t tmpfs -o size=64k none small' 2>/dev/null && break; done
if [ "$how" = none ]; then
    cannot "to mount a small file system (unshare)"
else
    cat >full.sh <<'F'
mount -t tmpfs -o size=512k none small && cd small || exit 90
aprquant -t f16 ../m.gguf o.apr 2>../e1; [ $? = 3 ] && grep -q 'not enough space on the disk' ../e1 || exit 91
aprconv convert ../m.apr o 2>../e1; [ $? = 3 ] && grep -q 'not enough space on the disk' ../e1 || exit 92
[ -z "$(ls -A .)" ] || exit 93
echo '{"input":"old report"}' >r.json && cp r.json ../r.json
head -c 1000000 /dev/zero >filler 2>/dev/null
aprquant -n -t f16 ../m.gguf o.apr --report r.json >/dev/null 2>../e1; [ $? = 3 ] && grep -q 'No space left' ../e1 || exit 94
cmp -s r.json ../r.json || exit 95
[ "$(ls -A . | tr '\n' ' ')" = 'filler r.json ' ] || exit 96
F
    $how sh full.sh
    code=$?
    if [ $code = 0 ]; then good; else bad "step $code of the full disk: $(cat e1)"; fi
fi

close_counts 'files and signals'
