#!/bin/sh
# run_cli.sh BUILD_DIR [NAME...] - runs tests/cli/NAME.cmd with the built tools, as many at once as there are cores, and
# compares what they answer.
#
#   NAME.cmd   shell lines, run in an empty folder with the tools in PATH and tests/data as data/
#   NAME.out   what stdout must be, exactly; missing: not looked at
#   NAME.err   an extended regular expression that a line of stderr must match; missing: stderr must be empty
#   NAME.exit  the exit code; missing: 0
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
shift
PATH=$build:$PATH
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
LC_ALL=C.UTF-8 # tests list folders
export PATH root work LC_ALL
unset NO_COLOR
limit=120 # seconds for a case; sanitized programs take several times as long
case $build in *asan*) limit=480 ;; esac
export limit

# One case, in a folder of its own: out, err and code are left there.
run_case='
    mkdir -p "$work/$1/in" && ln -s "$root/tests/data" "$work/$1/in/data"
    (cd "$work/$1/in" && exec timeout "$limit" sh "$root/tests/cli/$1.cmd") >"$work/$1/out" 2>"$work/$1/err" </dev/null
    echo $? >"$work/$1/code"
    rm -rf "$work/$1/in"'
[ $# -gt 0 ] || set -- $(cd "$root/tests/cli" && ls -- *.cmd | sed 's/\.cmd$//')
printf '%s\n' "$@" | xargs -r -P "$(nproc 2>/dev/null || echo 2)" -I{} sh -c "$run_case" - {}

. "$root/tests/counts.sh"
for name in "$@"; do
    case=$root/tests/cli/$name
    got=$work/$name
    wanted=0 bad=
    [ ! -f "$case.exit" ] || wanted=$(cat "$case.exit")
    code=$(cat "$got/code" 2>/dev/null)
    [ "$code" = "$wanted" ] || bad="exit code ${code:-none} instead of $wanted"
    if [ -f "$case.out" ] && ! cmp -s "$case.out" "$got/out"; then
        bad="$bad${bad:+, }other output"
        diff -u "$case.out" "$got/out" | head -n 40
    fi
    if [ -f "$case.err" ]; then
        grep -qE -e "$(cat "$case.err")" "$got/err" || bad="$bad${bad:+, }stderr does not match '$(cat "$case.err")'"
    elif [ -s "$got/err" ]; then
        bad="$bad${bad:+, }unexpected stderr"
    fi
    if [ -z "$bad" ]; then
        count 1 0 0
    else
        count 0 1 0
        echo "FAILED $name: $bad"
        head -n 20 "$got/err"
    fi
done
close_counts 'command-line tests'
