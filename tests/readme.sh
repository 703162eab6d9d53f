#!/bin/bash
# readme.sh BUILD_DIR - README and tools/doc are true: each command in them is run, and README keeps its size.
#
# In a block that begins with ```sh each line is a command that must end with exit code 0 or 1. In another block a line that begins
# with "$ " is a command, and the lines under it are what it prints: "..." stands for any lines, a number for any number. A block of
# README runs in one folder, from top to bottom, so that a command can use what an earlier one made. Each command of a page runs in
# a new folder. The folder has what the pages speak of (Qwen3-8B/, checkpoint/, model.gguf, config.json ...), made of the bundled
# model. `make TARGET` is looked up, not run. A command with --device cuda may also say that there is no GPU (exit 7).
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
PATH=$build:$PATH
LC_ALL=C.UTF-8
export PATH LC_ALL
unset NO_COLOR
work=$(mktemp -d) || exit 2
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
. "$root/tests/counts.sh"
fail() { echo "FAILED $*"; count 0 1 0; }

readme_size() {
    local readme=$root/README.md long words
    [ "$(wc -c <"$readme")" -le 12288 ] && [ "$(wc -l <"$readme")" -le 200 ] && count 1 0 0 ||
        fail "README.md: more than 12 KB or 200 lines"
    long=$(awk 'length > 100 {print FNR}' "$readme")
    [ -z "$long" ] && count 1 0 0 || fail "README.md: more than 100 columns in line" $long
    # Sentences end with a full stop, a colon, a question mark or with their paragraph. Code, tables and links are none.
    words=$(awk '/^```/ {code = !code; next} code || /^[|#!\[]/ {next} {print} /^$/ {print "."}' "$readme" | sed 's/^- /. /' | tr '\n' ' ' |
        sed -E 's/([.:;?])( |$)/\1\n/g' | awk 'NF > 30 {print "\"" $1, $2, $3, $4 " ...\" (" NF ")"}')
    [ -z "$words" ] && count 1 0 0 || fail "README.md: sentences of more than 30 words: $words"
}

make_fixtures() {
    local data=$root/tests/data to=$work/fixtures
    mkdir -p "$to" && cd "$to" || exit 2
    cp -r "$data/tiny-qwen2" . && chmod -R u+w tiny-qwen2 && rm tiny-qwen2/*.gguf tiny-qwen2/golden.*
    cp -r tiny-qwen2 Qwen3-8B && cp -r tiny-qwen2 checkpoint && cp -r tiny-qwen2 model && cp -r tiny-qwen2 original
    cp "$data/shapes/qwen3-8b.json" config.json && cp "$data/shapes/qwen2.5-32b.json" .
    mkdir -p tests/data && cp -r "$data/shapes" tests/data/
    head -c 6000 "$data/heldout.txt" >text.txt
    echo '{"prompt": "In the beginning", "max_tokens": 4}' >prompts.jsonl
    { aprconv convert checkpoint model.gguf && aprquant --to f16 checkpoint model-f16.gguf && aprquant --to q8_0 checkpoint model-q8_0.gguf; } >/dev/null || exit 2
}
fresh_folder() { rm -rf "$work/in" && cp -r "$work/fixtures" "$work/in" && cd "$work/in" || exit 2; }

# The commands of a page, one a line: "sh<TAB>command" or "shown<TAB>command<TAB>line<TAB>line ...", and "block" where a block begins.
commands_of() {
    awk 'function put() { if (shown != "") print shown; shown = "" }
        /^```/ {put(); inside = !inside; sh = /^```sh/; if (inside) print "block"; next}
        !inside {next}
        sh {sub(/ +#.*/, ""); if ($0 != "") print "sh\t" $0; next}
        /^\$ / {put(); shown = "shown\t" substr($0, 3); next}
        shown != "" {shown = shown "\t" $0}
        END {put()}' "$1"
}
# One command; its output is left in $work/out.
run_command() {
    local command=$1 code
    case $command in
    'make '*)
        for word in $command; do
            case $word in make | *=*) continue ;; esac
            grep -q "^$word:" "$root/Makefile" "$root"/tools/packaging/*.mk || { fail "$page: there is no 'make $word'"; return 1; }
        done
        count 1 0 0
        return
        ;;
    esac
    # a model without a prompt is a conversation, which needs a terminal; its input ends at once
    if [[ $command =~ ^aprrun\ +[^\ ]+\.gguf$ ]]; then command="script -qec '$command' /dev/null"; fi
    timeout 120 bash -c "$command" >"$work/out" 2>&1 </dev/null
    code=$?
    case $code:$command in
    [01]:*) ;;
    7:*'--device cuda'*) ;;
    *)
        fail "$page: exit code $code: $command"
        head -n 3 "$work/out"
        return 1
        ;;
    esac
}
# The printed lines against those of the page: both with every number as N, so that another machine's seconds agree.
agree() {
    local pattern
    pattern=$(printf '%s\n' "$@" | sed -E 's/[0-9][0-9.,]*/N/g; s/[][\\.*^$+?(){}|/]/\\&/g; s/^\\\.\\\.\\\.$/ANY/' |
        awk '{printf "%s", $0 == "ANY" ? "(.*\\n)*" : $0 "\\n"}')
    sed -E 's/[0-9][0-9.,]*/N/g' "$work/out" | perl -0777 -ne "exit(/^$pattern\$/ ? 0 : 1)"
}
run_page() {
    local kind command rest shown
    page=$1
    while IFS=$'\t' read -r kind command rest; do
        case $kind in
        block) [ "$page" != README.md ] || fresh_folder ;;
        sh)
            [ "$page" = README.md ] || fresh_folder
            run_command "$command" && count 1 0 0
            ;;
        shown)
            run_command "$command" || continue
            IFS=$'\t' read -ra shown <<<"$rest"
            if [ ${#shown[@]} -eq 0 ] || agree "${shown[@]}"; then
                count 1 0 0
            else
                fail "$page: prints something else: $command"
                cat "$work/out"
            fi
            ;;
        esac
    done < <(commands_of "$root/$page")
}

readme_size
make_fixtures
for page in README.md $(cd "$root" && ls tools/doc/*.md); do run_page "$page"; done
close_counts 'commands of README and tools/doc'
