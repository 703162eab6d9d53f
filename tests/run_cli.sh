#!/bin/sh
# run_cli.sh BUILD_DIR [NAME...] - runs tests/cli/NAME.cmd with the built tools and compares what they answer.
#
#   NAME.cmd   shell lines, run in an empty folder with the tools in PATH and tests/data as data/
#   NAME.out   what stdout must be, exactly; missing: not looked at
#   NAME.err   an extended regular expression that a line of stderr must match; missing: stderr must be empty
#   NAME.exit  the exit code; missing: 0
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
shift
PATH=$build:$PATH
export PATH
unset NO_COLOR
passed=0 failed=0

[ $# -gt 0 ] || set -- $(cd "$root/tests/cli" && ls -- *.cmd | sed 's/\.cmd$//')
for name in "$@"; do
    case=$root/tests/cli/$name
    scratch=$(mktemp -d) || exit 2
    mkdir "$scratch/in" && ln -s "$root/tests/data" "$scratch/in/data"
    (cd "$scratch/in" && exec timeout 120 sh "$case.cmd") >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    wanted=0 bad=
    [ ! -f "$case.exit" ] || wanted=$(cat "$case.exit")
    [ "$code" = "$wanted" ] || bad="exit code $code instead of $wanted"
    if [ -f "$case.out" ] && ! cmp -s "$case.out" "$scratch/out"; then
        bad="$bad${bad:+, }other output"
        diff -u "$case.out" "$scratch/out" | head -n 40
    fi
    if [ -f "$case.err" ]; then
        grep -qE -e "$(cat "$case.err")" "$scratch/err" || bad="$bad${bad:+, }stderr does not match '$(cat "$case.err")'"
    elif [ -s "$scratch/err" ]; then
        bad="$bad${bad:+, }unexpected stderr"
    fi
    if [ -z "$bad" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name: $bad"
        head -n 20 "$scratch/err"
    fi
    rm -rf "$scratch"
done
echo "command-line tests: $passed passed, $failed failed"
[ $failed -eq 0 ]
