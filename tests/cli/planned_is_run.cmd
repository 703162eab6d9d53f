# aprplan and aprrun agree about every family and every packed layout, whole and with faults; some of them here, all with make check-all
TALLY= "$root/tests/planned_is_run.sh" --some "$(dirname "$(command -v aprplan)")" |
    sed -E 's/^refused by both: [1-9][0-9]+$/refused by both: dozens/; s/[1-9][0-9]+ (passed|skipped)/dozens \1/g'
