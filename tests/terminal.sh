#!/bin/bash
# terminal.sh BUILD_DIR [-k] - what people see on a terminal of 60, 80 and 120 columns: no line is wider, and so no word is broken.
#
# Each command of the list below runs in a terminal of that width (tmux), and what stands there afterwards is compared with the
# captures in tests/terminal/NAME.COLUMNS, with numbers as a pattern. -k writes the captures anew.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
keep=${2:-}
. "$root/tests/counts.sh"
command -v tmux >/dev/null || { echo "skipped, because tmux is not here"; count 0 0 1; close_counts 'terminal tests'; exit; }
work=$(mktemp -d) || exit 2
trap 'tmux -L "aprkit-$$" kill-server 2>/dev/null; rm -rf "$work"' EXIT
export PATH=$build:$PATH LC_ALL=C.UTF-8 root work
unset NO_COLOR TMUX

# NAME, then the command.
cat >"$work/commands" <<'END'
aprconv-help aprconv --help
aprconv-show-help aprconv show --help
aprquant-help aprquant --help
aprplan-help aprplan --help
aprrun-help aprrun --help
verify-help aprrun verify --help
convert aprconv convert tiny out.apr
convert-loss aprconv convert tiny loss.gguf --dry-run
show aprconv show tiny.gguf
show-folder aprconv show tiny
check aprconv check tiny.gguf
diff aprconv diff tiny q4.gguf
diff-same aprconv diff tiny tiny.gguf
families aprconv families
quantize aprquant --to q4_k_m tiny out.gguf
dry-run aprquant --to q4_k_m --dry-run tiny none.gguf
types aprquant --list
plan aprplan --gpu rtx4090 qwen2.5-7b.json
plan-lines aprplan --gpu rtx4090 --lines qwen2.5-7b.json
plan-no aprplan --gpu rtx3060 --dtype q8_0 --ctx 32768 qwen2.5-32b.json
plan-many aprplan --gpu rtx4090,rtx3060 --dtype q4_k_m qwen2.5-32b.json
gpus aprplan --list-gpus
stats aprrun tiny -p 'In the beginning' -n 2 --stats
golden aprrun golden tiny golden/golden.json
verify aprrun verify q4.gguf --ref tiny
parity aprrun parity q4.gguf --positions 0 --layer 1
ppl aprrun ppl tiny text.txt
kld aprrun kld q4.gguf --ref tiny text.txt
imatrix aprrun imatrix tiny text.txt -o imatrix.gguf
bench aprrun bench tiny -d 0 -p 16 -n 4
batch aprrun batch tiny prompts.jsonl -o answers.jsonl
unknown aprrun veryfy tiny
damaged aprconv show damaged.gguf
missing aprconv convert nothing.gguf out.apr
short-help aprrun -h
help-words aprrun help words
doctor aprrun doctor --quick
chat printf 'Recite Ge1:1\n/stats\n/help\n' | aprrun chat tiny
chat-help aprrun chat --help
batch-help aprrun batch --help
tokenize aprrun tokenize tiny 'In the beginning'
detokenize aprrun detokenize tiny 73 2 5
version aprrun --version
suggestion aprconv convert tiny out.ggfu
END

data=$root/tests/data
mkdir "$work/in" && cd "$work/in" || exit 2
cp -r "$data/tiny-qwen2" tiny && chmod -R u+w tiny && rm tiny/*.gguf
mkdir golden && mv tiny/golden.* golden/
cp "$data/shapes/qwen2.5-7b.json" "$data/shapes/qwen2.5-32b.json" .
head -c 6000 "$data/heldout.txt" >text.txt
echo '{"prompt": "In the beginning", "max_tokens": 4}' >prompts.jsonl
{ aprconv convert tiny tiny.gguf && aprquant --to q4_k_m tiny q4.gguf; } >/dev/null || exit 2
head -c 5000 tiny.gguf >damaged.gguf

# In the terminal: each command on an empty screen, and then the screen into a file. -J joins what the terminal itself has wrapped.
cat >"$work/in-terminal" <<'END'
columns=$1
cp -r "$work/in" "$work/$columns" && cd "$work/$columns" || exit
PS1=
while read -r name command; do
    printf '\033[2J\033[H'
    case $command in *' | '*) eval "$command" ;; *) eval "$command" </dev/null ;; esac
    sleep 0.1
    tmux capture-pane -p -J | sed -e 's/ *$//' -e :a -e '/^\n*$/{$d;N;ba' -e '}' >"$work/$name.$columns"
    rm -rf out.apr out.gguf imatrix.gguf answers.jsonl
done <"$work/commands"
touch "$work/done.$columns"
END
for columns in 60 80 120; do
    tmux -L "aprkit-$$" -f /dev/null new-session -d -s "s$columns" -x $columns -y 400 "bash '$work/in-terminal' $columns 2>&1; sleep 1"
done
for i in $(seq 1200); do
    [ -e "$work/done.60" ] && [ -e "$work/done.80" ] && [ -e "$work/done.120" ] && break
    sleep 0.1
done

normal() { tr "\n" " " <"$1" | sed -E "s/[0-9][0-9.,e+-]*/N/g; s/ +/ /g"; }
same_but_numbers() { diff <(normal "$1" | fold -s -w 100) <(normal "$2" | fold -s -w 100); }
while read -r name command; do
    for columns in 60 80 120; do
        got=$work/$name.$columns
        wide=$(perl -CSD -lne "print qq(\$.: \$_) if length > $columns" "$got" 2>/dev/null)
        if [ ! -s "$got" ]; then
            echo "FAILED $name at $columns columns: nothing was printed"
            count 0 1 0
        elif [ -n "$wide" ]; then
            echo "FAILED $name is wider than $columns columns:"
            echo "$wide"
            count 0 1 0
        elif [ "$keep" = -k ]; then
            cp "$got" "$root/tests/terminal/"
            count 1 0 0
        elif [ "$name" = bench ] || [ "$name" = doctor ] || [ "$name" = version ]; then
            count 1 0 0 # what they say depends on the machine
        elif same_but_numbers "$root/tests/terminal/$name.$columns" "$got" >"$work/diff"; then
            count 1 0 0
        else
            echo "FAILED $name at $columns columns shows something else:"
            head -n 10 "$work/diff"
            count 0 1 0
        fi
    done
done <"$work/commands"
close_counts 'terminal tests'
