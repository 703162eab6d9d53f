#!/bin/sh
# check_archs.sh check|lock BUILD_DIR - the CUDA library has machine code for every architecture, and no kernel spills registers.
#
# Compiling all kernels for nine architectures takes 18 minutes on two cores. So kernels/cuda/archs.lock remembers what came out: for each
# .cu a hash of its code, of the code that it includes, of its flags and of nvcc's version.
#   check   compiles the files whose hash is not in the lock, and four others, drawn by the commit. More than MANY files are compiled
#           for five architectures, of which each has code that the others have not; then the library is linked, too.
#   lock    compiles everything for every architecture, and writes the lock. `make check-all` does so before a release.
cd "$(dirname "$0")/.." || exit 2
how=$1 build=$2
lock=kernels/cuda/archs.lock
MANY=12 some='75 80 90 100 120'
[ $# -eq 2 ] && { [ "$how" = check ] || [ "$how" = lock ]; } || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
# A make of its own, not a part of the one that called this: so it has all cores.
make() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make --no-print-directory -s CUDA=1 "$@"; }
fail() { echo "archs: $*"; exit 1; }

make ARCHS=all "$build/cuda/keys" || exit 1
all=$(sed -n 's/^architectures: //p' "$build/cuda/keys")
compiler=$(sed -n 's/^compiler: //p' "$build/cuda/keys")
grep '\.cu ' "$build/cuda/keys" >"$work/keys"
n_all=$(wc -l <"$work/keys")
[ "$n_all" -gt 0 ] || fail "$build/cuda/keys names no kernels"

# compile "ARCHS" FILE... - and look at what nvcc says of registers, and at the object's code
compile() {
    archs=$1
    shift
    objects=$(printf "$build/cuda/%s.o " "$@")
    make ARCHS="$archs" $objects "$build/gpu_archs" || exit 1
    bad=
    for o in $objects; do
        [ -s "$o.ptxas" ] || { echo "$o.ptxas: nothing is known of its registers"; bad=1; }
        ! grep -HE '[1-9][0-9]* bytes spill' "$o.ptxas" || bad=1
        said=$("$build/gpu_archs" -f "$o" $archs) || { echo "$o: $said"; bad=1; }
    done
    [ -z "$bad" ] || fail "a kernel spills registers, or lacks code for an architecture (above)"
}

if [ "$how" = lock ]; then
    compile "$all" $(cut -d' ' -f1 "$work/keys")
    {
        echo "# Written by make archs-lock: kernels that were compiled for every architecture, without spilling. tests/check_archs.sh says what for."
        echo "# $compiler"
        echo "# architectures: $all"
        cat "$work/keys"
    } >"$work/lock" && cp "$work/lock" $lock
    echo "archs: $n_all kernels, $(echo $all | wc -w) architectures, 0 spills; $lock is written"
    exit
fi

locked=$(sed -n 's/^# architectures: //p' $lock)
[ "$locked" = "$all" ] || fail "the Makefile's architectures are $all, those of $lock $locked: make archs-lock"
sort $lock >"$work/locked"
changed=$(sort "$work/keys" | comm -23 - "$work/locked" | cut -d' ' -f1)
n_changed=$(printf '%s' "$changed" | grep -c .)
commit=$(git rev-parse HEAD 2>/dev/null)
drawn=$(sort "$work/keys" | comm -12 - "$work/locked" | while read -r file key; do
    echo "$(echo "$commit $file" | sha256sum | cut -c 1-16) $file"
done | sort | head -n 4 | cut -d' ' -f2)
archs=$all
[ "$n_changed" -le $MANY ] || archs=$some
compile "$archs" $changed $drawn
if [ "$n_changed" -eq "$n_all" ]; then
    make ARCHS="$archs" "$build/libaprkit-cuda.so" && tests/loads.sh "$build/libaprkit-cuda.so" || exit 1
fi
echo "archs: of $n_all kernels $n_changed were changed since $lock, and compiled; $(echo $drawn | wc -w) others, too:" $drawn
echo "archs: $(echo "$archs" | wc -w) architectures ($archs), 0 spills"
