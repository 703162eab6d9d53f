# every family, as transformers computes it: from the checkpoint, from APR, from the GGUF that we write; and back, byte for byte
. "$root/tests/cli/golden_families.sh"
check_families "$root/tests/cli/golden_families_i_to_z.out" 0 data/families/[i-z]*/
