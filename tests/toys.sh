#!/bin/sh
# toys.sh [-k] [TOY...] - proves what it takes to add a dtype, a file format, ...: for each tests/toys/TOY, copies the checkout
# into a folder of its own, adds the toy, builds what the proof needs, runs the proof, prints which files it touched, and
# compares them with README's line "To add ...". -k keeps the folders.
#
#   tests/toys/TOY/new/    files that are added, under their paths
#   tests/toys/TOY/edit    what is changed in files that exist: lines of `before`, `after` and `within` (below)
#   tests/toys/TOY/prove   shell lines, run in the copy; `build` makes programs, ./out is for what they write
#
# Objects of build/release come along, so that only what a toy changes is compiled.
cd "$(dirname "$0")/.." || exit 2
keep=
[ "$1" != -k ] || { keep=1; shift; }
[ $# -gt 0 ] || set -- $(cd tests/toys && ls)
root=$PWD
work=$(mktemp -d) || exit 2
[ -n "$keep" ] || trap 'rm -rf "$work"' EXIT

# change before|after|within FILE TEXT NEW - NEW as a line before or after the first line with TEXT, or in the place of TEXT.
change() {
    [ -f "$2" ] || { echo "there is no $2"; return 1; }
    how=$1 old=$3 new=$4 awk '
        !done && (at = index($0, ENVIRON["old"])) {
            done = 1
            if (ENVIRON["how"] == "within") $0 = substr($0, 1, at - 1) ENVIRON["new"] substr($0, at + length(ENVIRON["old"]))
            if (ENVIRON["how"] == "before") print ENVIRON["new"]
            print
            if (ENVIRON["how"] == "after") print ENVIRON["new"]
            next
        }
        {print}
        END {exit !done}' "$2" >"$work/changed" || { echo "$2 has no line with: $3"; return 1; }
    cat "$work/changed" >"$2"
    echo "$2" >>"$work/touched"
}
before() { change before "$@"; }
after() { change after "$@"; }
within() { change within "$@"; }
build() { for t; do set -- "$@" "build/release/$t"; shift; done; make --no-print-directory -s CUDA=0 WERROR=1 "$@"; }

copy_checkout() {
    mkdir "$1" && git ls-files -co --exclude-standard -z | xargs -0 ls -d 2>/dev/null | tar -cf - -T - | tar -xf - -C "$1" || return 1
    [ ! -d build/release ] || { mkdir -p "$1/build" && cp -a build/release "$1/build/"; }
    rm -rf "$1/build/release/cuda"
}
# In the copy, and never as a condition: any line that fails ends it.
add_and_prove() {
    set -e
    cd "$1"
    if [ -d "$toy/new" ]; then
        cp -R "$toy/new/." .
        find "$toy/new" -type f | sed "s|^$toy/new/||" >>"$work/touched"
    fi
    . "$toy/edit"
    mkdir -p out
    . "$toy/prove"
}
# README's list for it: what stands in `...` on its line, with a NAME where the toy has one; test data of its own are no list's.
listed() { sed -n "s/^\*\*To add .* $1:\*\*//p" README.md | grep -oE '`[a-z][^` ]*/[^` ]*`' | tr -d '`' | sort -u; }

bad=0
for name in "$@"; do
    toy=$root/tests/toys/$name
    : >"$work/touched"
    say=$(echo "$name" | tr - ' ')
    if ! copy_checkout "$work/$name"; then echo "$say: cannot copy the checkout"; exit 2; fi
    (add_and_prove "$work/$name") >"$work/log" 2>&1
    if [ $? -eq 0 ]; then
        echo "a toy $say works; it touched"
    else
        tail -n 40 "$work/log"
        echo "a toy $say does not work; it touched"
        bad=1
    fi
    sort -u "$work/touched" | sed 's/^/  /'
    sed 's/toy/NAME/g' "$work/touched" | grep -v '^tests/corpus/' | sort -u >"$work/named"
    listed "$say" | diff - "$work/named" >"$work/differ" || {
        echo "README's line 'To add ... $say' and these files differ (<: README alone, >: the toy alone):"
        grep '^[<>]' "$work/differ"
        bad=1
    }
    [ -n "$keep" ] || rm -rf "${work:?}/$name"
done
[ $bad -eq 0 ] && echo "toys: $# added, all work, and README says what each takes"
exit $bad
