# the same of other widths and weights
. "$root/tests/cli/golden_families.sh"
check_families "$root/tests/cli/golden_families_even.out" 1 data/families-even/[a-h]*/
