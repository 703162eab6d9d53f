#!/bin/sh
# run_all.sh [--without-signals] BUILD_DIR UNIT REPLAY "GPU_TEST..." - all of `make test`. Goes on after a failure, names what was
# not run and why, and closes with the counts of the whole run. The tests that need a GPU are the only ones left out.
here=$(dirname "$0")
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
. "$here/counts.sh"
bad=0 signals=1
[ "$1" != --without-signals ] || { signals=0; shift; }
# What a part counted; one that ended without counting has failed.
part() {
    TALLY=$work/tally "$@" || bad=1
    if read -r p f s <"$work/tally"; then count "$p" "$f" "$s"; else count 0 1 0; fi 2>/dev/null
    rm -f "$work/tally"
}

part "$here/run_units.sh" "$2"
part "$here/run_cli.sh" "$1"
part "$here/habits.sh" "$1"
if [ $signals -eq 1 ]; then
    part "$here/files.sh" "$1"
    part "$here/resume.sh" "$1"
    part "$here/install.sh" "$1"
    part "$here/manual.sh" "$1"
    part "$here/packages.sh" "$1"
fi
[ "${1##*/}" != release ] || part "$here/library.sh" "$1" # what is installed has no sanitizers
part "$here/run_replays.sh" "$3"
for t in $4; do count 0 0 1; done
[ -z "$4" ] || echo "skipped, because they need a GPU (make check-gpu runs them):" $4
close_counts 'all tests' && [ $bad -eq 0 ]
