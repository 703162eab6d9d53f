# killing.sh - sourced by kills.sh and batch_kills.sh with BUILD_DIR as the first argument: the tools in PATH, a folder of its own to work in,
# what has failed, and random moments.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
PATH=$build:$PATH
export PATH OMP_NUM_THREADS=2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
failed=0
about() { :; } # what a failure is about, where a script says so
bad() { failed=$((failed + 1)); echo "FAILED $(about)$*"; }

# between so many and so many microseconds, in seconds
moment() { od -An -N4 -tu4 /dev/urandom | awk -v from="$1" -v to="$2" '{printf "%.4f", (from + (to - from) * $1 / 4294967296) / 1e6}'; }
# microseconds since a time of `now`
now() { date +%s%N; }
since() { echo $((($(now) - $1) / 1000)); }
