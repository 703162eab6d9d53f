#!/bin/bash
# manual.sh BUILD_DIR - the manual pages and completions in BUILD_DIR/share: what help says is in them, mandoc and man have nothing to say
# about them, and shells complete by them. mandoc, man, zsh and fish are skipped where they are not installed; bash is here.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
share=$build/share
PATH=$build:$PATH
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
. "$root/tests/counts.sh"
export LC_ALL=C.UTF-8
good() { count 1 0 0; }
bad() {
    echo "FAILED manual: $*"
    count 0 1 0
}
silent() { # WHAT, and what was printed
    [ -z "$2" ] && good || { bad "$1" && head -n 10 <<<"$2"; }
}
has() { command -v "$1" >/dev/null || { count 0 0 1; false; }; }

# Each verb has a page; each option of each command is in its page, with its text.
if has python3; then
    python3 - "$share" <<'END' >"$work/missing" 2>&1 || bad 'the pages cannot be compared with help'
import json, re, subprocess, sys
for tool in 'aprconv', 'aprquant', 'aprplan', 'aprrun':
    said = json.loads(subprocess.run([tool, '--help', '--json'], stdout=subprocess.PIPE, check=True).stdout)
    for command in said['commands']:
        name = tool + ('-' + command['verb'] if command['verb'] else '')
        page = open(f'{sys.argv[1]}/man1/{name}.1').read()
        for code, char in (r'\-', '-'), (r'\(aq', "'"), (r'\(dq', '"'), (r'\(ti', '~'), (r'\(ha', '^'), (r'\&', ''), (r'\e', '\\'), ('\n', ' '):
            page = page.replace(code, char)
        for text in [command['summary']] + [o['help'] for o in command['options'] + said['common_options']] + command['examples']:
            if text[1:] not in page and text[1:].rstrip('?') not in page: print(f'{name}: not in its page: {text}')
        for o in command['options'] + said['common_options']:
            if not re.search(r'Fl -(no-)?%s\b' % o['name'], page): print(f"{name}: not in its page: --{o['name']}")
END
    silent 'what help says is not in the pages' "$(cat "$work/missing")"
fi
for page in $(sed -n 's/^\.\(It \)\?Xr \([^ ]*\) \([17]\).*/man\3\/\2.\3/p' "$share"/man?/* | sort -u); do
    [ -f "$share/$page" ] && good || bad "a page refers to $page, which is not there"
done
# what only an installed page can find: the others
if has mandoc; then silent 'mandoc -Tlint' "$(mandoc -Tlint "$share"/man?/* 2>&1 | grep -v 'referenced manual not found')"; fi
if has man; then
    silent 'man --warnings' "$(for page in "$share"/man?/*; do MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null; done)"
fi
silent 'a newline is missing, or a blank at the end of a line' "$(grep -nE ' $' "$share"/man?/* | head -n 3)"

# What a person types, with @ for the key Tab, and the arguments that the tool then gets. The shell runs a function in place of the tool.
mkdir -p "$work/in/hub/models--Org--Name" "$work/in/ckpt" "$work/in/z" && cd "$work/in" || exit 2
touch m.gguf q.apr note.txt lines.jsonl page.html
rows='aprconv con@|convert
aprconv diff m@ q@|diff m.gguf q.apr
aprconv diff --tol@5|diff --tolerance 5
aprplan --gpu h200@|--gpu h200
aprquant -t q6@|-t q6_k
aprrun --kv=q@|--kv=q8_0
aprrun --device re@m@|--device ref m.gguf
aprrun Or@|Org/Name
aprrun ppl m@ n@|ppl m.gguf note.txt
aprrun batch m@ li@|batch m.gguf lines.jsonl
aprrun verify --html p@|verify --html page.html
aprrun -c 5 m@--stat@|-c 5 m.gguf --stats'
typed() {
    while IFS='|' read -r line _; do printf '%s\n' "${line//@/$'\t'}"; done <<<"$rows"
    printf 'exit\n'
}
functions() { for t in aprconv aprquant aprplan aprrun; do printf '%s() { printf "GOT"; printf " %%s" "$@"; echo " ."; }\n' $t; done; }
compare() { # SHELL, what it printed
    local wanted got
    wanted=$(sed 's/.*|/GOT /; s/$/ ./' <<<"$rows")
    got=$(tr -d '\r' <<<"$2" | grep -o 'GOT .* \.$' | sed "s/--tolerance=5/--tolerance 5/")
    [ "$wanted" = "$got" ] && good || { bad "completion of $1" && diff <(echo "$wanted") <(echo "$got"); }
}
export HF_HUB_CACHE=$work/in/hub TERM=dumb
{
    echo ". '$share/completion/aprkit.bash'"
    functions
    echo "bind 'set bell-style none'; bind 'set enable-bracketed-paste off'; PS1='$ '"
} >rc.bash
compare bash "$(typed | timeout 60 script -qec 'bash --rcfile rc.bash -i' /dev/null 2>&1)"
silent 'bash: ' "$(bash -n "$share/completion/aprkit.bash" 2>&1)"
if has zsh; then
    cp "$share/completion/aprkit.zsh" z/_aprkit
    { # shellcheck disable=SC2016
        echo 'fpath=($ZDOTDIR $fpath); autoload -Uz compinit; compinit -u -D; unset zle_bracketed_paste; unsetopt beep; PS1="$ "'
        functions
    } >z/.zshrc
    compare zsh "$(typed | ZDOTDIR=$PWD/z timeout 60 script -qec 'zsh -o noglobalrcs -i' /dev/null 2>&1)"
fi
if has fish; then
    for t in aprconv aprquant aprplan aprrun; do echo "source '$share/completion/$t.fish'"; done >rc.fish
    # fish answers by itself what would complete the last word
    while IFS='|' read -r line _; do
        last=${line%@} && last=${last//@/ }
        [[ $line != *@ ]] || echo "complete -C \"$last\" | string split -f1 \\t | string join ' '"
    done <<<"$rows" >>rc.fish
    silent 'completion of fish' "$(diff <(HOME=$work/in timeout 60 fish --no-config rc.fish 2>&1) - <<'END'
convert
q.apr
h200
q6_k
--kv=q8_0
m.gguf
Org/Name
note.txt
lines.jsonl
page.html
--stats
END
    )"
fi
close_counts 'manual pages and completions'
