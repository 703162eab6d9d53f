#!/bin/bash
# habits.sh BUILD_DIR [REGEX] - types each command of tests/cli/habits.tsv (or those that match REGEX) as a person would, and sees whether
# it does what was meant, or names what does. Columns of the table, separated by tabs:
#
#   command   run by bash -c in a folder of its own (make_folder below says what is in it), with stdin /dev/null, 20 seconds at most
#   exit      the exit code; several that may be, as 0|7
#   stdout    an extended regular expression that must match it; "-": nothing may be printed; "*": anything may
#   stderr    the same for stderr
#   files     what may appear in the folder, separated by blanks; "-": nothing
#   terminal  tty: stdin, stdout and stderr are a terminal, and both expressions are of what is seen there; "-": it is none
#   verdict   did: exit 0 or 1, or a code that a signal gives; named: stderr ends in "try: COMMAND" or "try 'COMMAND'", which is run next
#             and must exit with 0; elsewhere: stderr says that aprkit does not do this, and what does, or what is wrong with what was
#             given. "pending did" and its like: not done yet, the words before tell why; the row is listed, not run
#
# Lines that begin with # are comments. A row fails when a file or folder appears that it does not name, or an input changes.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
only=${2:-}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
PATH=$build:$PATH
export PATH root work LC_ALL=C.UTF-8 OMP_NUM_THREADS=1
unset NO_COLOR HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE XDG_CACHE_HOME COLUMNS MAKEFLAGS MAKELEVEL MFLAGS
export limit=20
case $build in *asan*) limit=240 ;; esac

# What a person has: models, checkpoints, a folder with config.json alone, a cache of Hugging Face, texts.
make_folder() {
    local data=$root/tests/data/tiny-qwen2 snapshot
    mkdir -p ckpt cfg odd vocab-only && cp "$data"/{config,generation_config,tokenizer,tokenizer_config}.json "$data"/chat_template.jinja \
        "$data"/model.safetensors "$data"/golden.json ckpt || return
    cp -r ckpt tiny-qwen2 && cp "$data"/golden.safetensors tiny-qwen2 && cp "$data"/config.json cfg && cp "$data"/tiny-qwen2-Q4_K_M.gguf q4.gguf || return
    aprconv convert -q "$data" m.gguf >/dev/null || return
    for name in model x a b; do cp m.gguf $name.gguf; done
    cp "$root"/tests/data/shapes/qwen2.5-{7b,32b}.json "$root"/tests/data/heldout.txt . && head -c 3000 heldout.txt >text.txt
    for id in Org--Name Tiny--Qwen2 meta--Tiny-8B; do
        snapshot=.cache/huggingface/hub/models--$id/snapshots/0a1b2c3d
        mkdir -p "${snapshot%/*}" "${snapshot%/*/*}"/{refs,blobs} && cp -r ckpt "$snapshot" && printf 0a1b2c3d >"${snapshot%/*/*}/refs/main" || return
    done
    cp -r .cache/huggingface hf
    printf '%s\n' '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"x","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}}' >openai.jsonl
    sed 's/"max_tokens":4/"max_tokens":4,"n":1,"stream":false/' openai.jsonl >openai-n1.jsonl
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 3415256\n' 7 >odd/lfs-pointer.gguf
    printf '<!doctype html>\n<html><head><title>404</title></head></html>\n' >odd/404.gguf
    cp tiny-qwen2/{config,tokenizer_config}.json tiny-qwen2/model.safetensors vocab-only
    if command -v jq >/dev/null; then # as tokenizers were kept before tokenizer.json
        jq .model.vocab tiny-qwen2/tokenizer.json >vocab-only/vocab.json
        jq -r '.model.merges[] | if type == "array" then join(" ") else . end' tiny-qwen2/tokenizer.json >vocab-only/merges.txt
    fi
}
mkdir "$work/folder" && (cd "$work/folder" && HOME=$work/folder make_folder) || { echo "habits: the folder cannot be made"; exit 2; }
touch "$work/made"

# One row: its number. Leaves $work/NUMBER.bad with what is wrong, or nothing.
row() {
    local line command code out err files terminal verdict
    line=$(sed -n "$1p" "$work/rows")
    IFS=$'\t' read -r command code out err files terminal verdict <<<"$line"
    local in=$work/in$1 got
    wrong() { printf '  %s\n' "$2" >>"$work/$1.bad"; }
    cp -al "$work/folder" "$in" && cd "$in" || exit 2
    export HOME=$in
    (cd "$in" && find . | sort) >"$work/$1.before"
    if [ "$terminal" = tty ]; then
        timeout "$limit" env --default-signal=INT,TERM,HUP script -qec "bash -c $(printf %q "$command")" /dev/null </dev/null >"$work/$1.out" 2>&1
        got=$?
        tr -d '\r' <"$work/$1.out" >"$work/$1.err" && cp "$work/$1.err" "$work/$1.out"
    else
        timeout "$limit" env --default-signal=INT,TERM,HUP bash -c "$command" >"$work/$1.out" 2>"$work/$1.err" </dev/null
        got=$?
    fi
    [[ $got =~ ^($code)$ ]] || wrong "$1" "exit code $got, not $code"
    fits "$1" stdout "$out" "$work/$1.out"
    fits "$1" stderr "$err" "$work/$1.err"
    local f new
    new=$( (cd "$in" && find . | sort) | comm -13 "$work/$1.before" -)
    while read -r f; do
        [ -z "$f" ] || allowed "${f#./}" "$files" || wrong "$1" "${f#./} appeared"
    done <<<"$new"
    [ "$files" = - ] || for f in $files; do [ -e "$in/$f" ] || wrong "$1" "$f is not there"; done
    new=$(cd "$in" && find . -type f -newer "$work/made" -links +1)
    [ -z "$new" ] || wrong "$1" "changed: $new"
    new=$( (cd "$in" && find . | sort) | comm -23 "$work/$1.before" -)
    [ -z "$new" ] || wrong "$1" "gone: $new"
    if [ "$verdict" = named ] && [ $got -ne 0 ]; then
        command=$(sed -nE "s/.*[;:,] try: (.*)$/\1/p; s/.*[;:,] try '([^']*)'.*/\1/p" "$work/$1.err" | tail -n 1)
        if [ -z "$command" ]; then
            wrong "$1" "names no command: $(head -c 300 "$work/$1.err")"
        else
            timeout "$limit" env --default-signal=INT,TERM,HUP bash -c "$command" >"$work/$1.out" 2>"$work/$1.err2" </dev/null ||
                wrong "$1" "exit code $? of what it names: $command: $(head -c 200 "$work/$1.err2")"
        fi
    fi
    chmod -R u+w "$in" && rm -rf "$in"
}
fits() { # NUMBER NAME EXPRESSION FILE
    case $3 in
    '*') ;;
    -) [ ! -s "$4" ] || wrong "$1" "$2 is not empty: $(head -c 200 "$4")" ;;
    *) grep -qE -e "$3" "$4" || wrong "$1" "$2 does not match '$3': $(head -c 300 "$4")" ;;
    esac
}
allowed() { # PATH "FILES": one of them, or in one of them
    local f
    for f in $2; do case $1 in "$f" | "${f%/}"/* | "${f%/}") return 0 ;; esac; done
    return 1
}
export -f row fits allowed

grep -vE '^(#|$)' "$root/tests/cli/habits.tsv" | grep -E -e "${only:-.}" >"$work/all"
# A row whose command needs a program that is not here is skipped.
missing=
case $build in *asan*) # what ends programs by signals after seconds is for builds of full speed
    grep -v '^timeout --preserve-status' "$work/all" >"$work/unhurried" && mv "$work/unhurried" "$work/all" ;;
esac
for program in jq script; do command -v $program >/dev/null || missing="$missing|$program"; done
[ -z "$missing" ] || grep -vE "\\| (${missing#|}) |	tty	" "$work/all" >"$work/here"
[ -n "$missing" ] || cp "$work/all" "$work/here"
grep -vP '\tpending [^\t]*$' "$work/here" >"$work/rows"
grep -P '\tpending [^\t]*$' "$work/here" >"$work/pending"
n=$(wc -l <"$work/rows")
[ "$n" -eq 0 ] || seq "$n" | xargs -P "$(nproc 2>/dev/null || echo 2)" -I{} bash -c 'row {}'

. "$root/tests/counts.sh"
for i in $(seq "$n"); do
    if [ -s "$work/$i.bad" ]; then
        count 0 1 0
        echo "FAILED habit: $(sed -n "${i}p" "$work/rows" | cut -f 1)"
        cat "$work/$i.bad"
    else
        count 1 0 0
    fi
done
count 0 0 $(($(wc -l <"$work/all") - n))
if [ -s "$work/pending" ]; then
    echo "pending, not run:"
    awk -F'\t' '{printf "  %s: %s\n", $7, $1}' "$work/pending"
fi
awk -F'\t' '{split($7, w, " "); n[w[1]]++} END {printf "habits: %d did, %d named, %d elsewhere, %d pending\n", n["did"], n["named"], n["elsewhere"], n["pending"]}' "$work/all"
close_counts habits
