# What runs the tests must not pass when there is nothing to run, when a program runs no test, skips one, or dies.
tests=$(dirname "$(readlink -f data)")
say() { printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }
run() {
    echo "== $*"
    "$tests/$@" >said 2>/dev/null
    code=$?
    grep -vE '^Killed|not found' said # what shells say, each in its own words
    echo "exit code $code"
}
unset TALLY CUDA
cat >unit <<'END'
#!/bin/sh
case $1 in
--list) echo $LISTED ;;
good) echo "[       OK ] a"; echo "[  PASSED  ] 1 test(s)." ;;
dies) kill -9 $$ ;;
skips) echo "[  PASSED  ] 1 test(s)."; echo "[  SKIPPED ] 1 test(s), listed below:" ;;
fails) echo "[  PASSED  ] 1 test(s)."; echo "[  FAILED  ] 2 test(s), listed below:"; exit 2 ;;
esac
END
chmod +x unit
export LISTED=
run run_units.sh
run run_units.sh ./missing
run run_units.sh ./unit
run run_units.sh ./unit good
run run_units.sh ./unit quiet
run run_units.sh ./unit dies
LISTED='skips good'
run run_units.sh ./unit
run run_units.sh ./unit fails
say no_target 'exit 0'
say has_no_corpus 'echo nothing'
say finds '[ "$1" = --list ] && echo json || kill -6 $$'
run run_replays.sh ./no_target
run run_replays.sh ./has_no_corpus | sed 's|in .*/tests/|in tests/|'
run run_replays.sh ./finds
run run_gpu.sh . ./gpu_a ./gpu_b
export CUDA=1
run run_gpu.sh . ./gpu_a
