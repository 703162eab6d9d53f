#!/bin/sh
# proved.sh run STEP | write STEP... - steps that take minutes, and need not be taken again while what they run is the same.
#
#   run     `make STEP`, unless tests/proved.lock has the hash of all that STEP runs: the code of its tests and of everything that
#           they may call, the Makefile and the scripts
#   write   puts the hashes of STEPs into tests/proved.lock; `make check-all` does, after it has taken these steps
cd "$(dirname "$0")/.." || exit 2
lock=tests/proved.lock

# The files that a step's programs begin with.
roots_of() {
    case $1 in
    tsan) for u in $(make -s print-tsan-units); do ls tests/*/test_"$u".c; done && ls tests/unit.c tests/support/*.c ;;
    check-emulated)
        for t in $(make -s print-emulated-checks); do ls tests/gpu/"$t".c*; done
        find tests/emulated -type f -name '*.cpp' && ls kernels/cuda/*/*.cu tests/emulated/include/*.h tests/support/*.c tests/gpu/drills.cu tools/aprrun.c
        ;;
    *) return 1 ;;
    esac
}
key_of() {
    roots=$(roots_of "$1") || { echo "proved.sh: there is no step $1" >&2; exit 2; }
    text=$(kernels/closure.sh -c $roots) || exit 2
    { printf '%s\n' "$text"; cat Makefile tests/run_units.sh tests/run_emulated.sh tests/emulated/rewrite.sed; } | sha256sum | cut -c 1-32
}

how=$1
shift
case $how in
run)
    key=$(key_of "$1") || exit 2
    said=$(sed -n "s/^$1 $key //p" $lock 2>/dev/null)
    [ -z "$said" ] || { echo "$1: not run, for all that it runs is as it was when it passed ($said)"; exit; }
    exec make "$1"
    ;;
write)
    for step; do key=$(key_of "$step") || exit 2; echo "$step $key $(date -u +%F), $(uname -m), $(clang --version | head -n 1)"; done >$lock.new || exit 2
    mv $lock.new $lock
    ;;
*) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
