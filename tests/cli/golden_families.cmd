# every family, as transformers computes it: from the checkpoint, from APR, from the GGUF that we write; and back, byte for byte
. "$root/tests/cli/golden_families.sh"
check_families "$root/tests/cli/golden_families.out" 0 data/families/[a-h]*/
make_family data/families/llama llama && aprrun golden --device ref llama data/families/llama/golden.safetensors | tail -n 5 |
    sed 's/off by [0-9.e-]*/off by X/'
