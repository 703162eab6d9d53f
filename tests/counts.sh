# counts.sh - sourced by the scripts that run tests: counts what passed, failed and was skipped, and says so in one form.
#
#   count PASSED FAILED SKIPPED   adds to the counts
#   close_counts NAME             prints "NAME: N passed, N failed, N skipped", appends the counts to the file $TALLY if it
#                                 is set; false when something failed or nothing was run at all
passed=0 failed=0 skipped=0
count() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }
close_counts() {
    if [ $((passed + failed + skipped)) -eq 0 ]; then
        echo "$1: there was nothing to run, which counts as failed"
        failed=1
    fi
    echo "$1: $passed passed, $failed failed, $skipped skipped"
    [ -z "$TALLY" ] || echo "$passed $failed $skipped" >>"$TALLY"
    [ "$failed" -eq 0 ]
}
