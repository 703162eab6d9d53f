#!/bin/sh
# toys.sh [-k] [TOY...] - proves what it takes to add a dtype, a file format, ...: adds each tests/toys/TOY to one copy of the
# checkout, builds once what all proofs need, runs the proof of each, prints which files each one touched, and compares them with
# CONTRIBUTING's line "To add ...". -k keeps the copy.
#
#   tests/toys/TOY/new/     files that are added, under their paths
#   tests/toys/TOY/edit     what is changed in files that exist: lines of `before`, `after` and `within` (below)
#   tests/toys/TOY/prepare  shell lines, run in the copy before it is built: `build` and `units` name programs and unit tests that the
#                           proof needs; what else is changed for the proof alone is changed here, too
#   tests/toys/TOY/prove    shell lines, run in the copy when it is built: `unit` runs tests, ./out is for what they write
#
# All toys are in the copy when one is proved: names and numbers that they define must differ. Objects of build/release come along
# as copies, so that a toy that changes little compiles little, and nothing is written into the checkout. What is compiled is not
# optimised: most of the time goes into compiling.
cd "$(dirname "$0")/.." || exit 2
keep=
[ "$1" != -k ] || { keep=1; shift; }
[ $# -gt 0 ] || set -- $(cd tests/toys && ls)
root=$PWD
work=$(mktemp -d) || exit 2
copy=$work/copy
if [ -n "$keep" ]; then echo "the copy is $copy"; else trap 'rm -rf "$work"' EXIT; fi

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
    echo "$2" >>"$work/$name.touched"
}
before() { change before "$@"; }
after() { change after "$@"; }
within() { change within "$@"; }
build() { for t; do echo "build/release/$t"; done >>"$work/programs"; }
units() { for t; do echo "$t"; done >>"$work/units"; }
unit() { for t; do build/release/unit "$t"; done; }

copy_checkout() {
    mkdir "$copy" && git ls-files -co --exclude-standard -z | xargs -0 ls -d 2>/dev/null | tar -cf - -T - | tar -xf - -C "$copy" || return 1
    [ ! -d build/release ] || find build/release -name '*.[od]' ! -path 'build/release/cuda/*' ! -path 'build/release/emulated/*' -print0 |
        tar -cf - --null -T - | tar -xf - -C "$copy"
}
# A make of its own, not a part of the one that called this: so it has all cores.
build_all() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$copy" --no-print-directory -s -j"$(nproc)" B=build/release FLAVOR=debug flags_debug=-O0 CUDA=0 WERROR=1 UNITS="$(echo $(sort -u "$work/units"))" build/release/unit $(sort -u "$work/programs"); }

# In the copy, and never as conditions: any line that fails ends them.
add() {
    set -e
    cd "$copy"
    if [ -d "$toy/new" ]; then
        cp -R "$toy/new/." .
        find "$toy/new" -type f | sed "s|^$toy/new/||" >>"$work/$name.touched"
    fi
    . "$toy/edit"
    fresh_out
    . "$toy/prepare"
}
prove() {
    set -e
    cd "$copy"
    fresh_out
    . "$toy/prove"
}
fresh_out() { mkdir -p "out-$name" && ln -sfn "out-$name" out; }

# CONTRIBUTING's list for it: what stands in `...` on its line, with a NAME where the toy has one; its own test data are in no list.
listed() { sed -n "s/^\*\*To add .* $1:\*\*//p" CONTRIBUTING.md | grep -oE '`[a-z][^` ]*/[^` ]*`' | tr -d '`' | sort -u; }
named() { sed 's/toy[0-9]*/NAME/g' "$work/$name.touched" | grep -v '^tests/corpus/' | sort -u; }

copy_checkout || { echo "cannot copy the checkout"; exit 2; }
for name; do
    toy=$root/tests/toys/$name
    : >"$work/$name.touched"
    (add) >"$work/log" 2>&1
    [ $? -eq 0 ] || { tail -n 40 "$work/log"; echo "a toy $name cannot be added"; exit 1; }
done
if ! build_all >"$work/log" 2>&1; then
    tail -n 40 "$work/log"
    [ $# -gt 1 ] || { echo "a toy $1 cannot be built"; exit 1; }
    echo "these toys cannot be built together: $*; each by itself:"
    for name; do tests/toys.sh "$name"; done
    exit 1
fi
bad=0
for name; do
    toy=$root/tests/toys/$name
    say=$(echo "$name" | tr - ' ')
    (prove) >"$work/log" 2>&1
    if [ $? -eq 0 ]; then
        echo "a toy $say works; it touched"
    else
        tail -n 40 "$work/log"
        echo "a toy $say does not work; it touched"
        bad=1
    fi
    sort -u "$work/$name.touched" | sed 's/^/  /'
    named >"$work/named"
    listed "$say" | diff - "$work/named" >"$work/differ" || {
        echo "CONTRIBUTING's line 'To add ... $say' and these files differ (<: that line alone, >: the toy alone):"
        grep '^[<>]' "$work/differ"
        bad=1
    }
done
[ $bad -eq 0 ] && echo "toys: $# added, all work, and CONTRIBUTING says what each takes"
exit $bad
