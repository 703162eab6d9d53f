# golden_families.sh - sourced by golden_families*.cmd.
#
#   check_families EXPECTED FIRST FOLDER...   each family, as transformers computes it: from the checkpoint, from APR, from the GGUF that
#                                             we write; and back, byte for byte
#
# Four runs compare a family. A build with sanitizers takes two of them, and the other two of the next family; for those that it leaves
# out it prints the lines of EXPECTED, the case's own .out. FIRST, 0 or 1, says with which two it begins: what a family's run leaves out
# at one width is taken at the other.
every=1
case $(command -v aprrun) in *asan*) every=2 ;; esac
check_families() {
    expected=$1 n_family=$2
    shift 2
    for folder; do
        family=$(basename "$folder")
        make_family "$folder" "$family" || exit 1
        aprconv convert "$family" "$family.apr" >/dev/null 2>&1 || exit 1
        aprconv convert "$family" "$family.gguf" >/dev/null 2>refused || grep -o "ggml's is not supported .*" refused || exit 1
        aprconv convert "$family.apr" back/ >/dev/null 2>&1 || exit 1
        cmp "$family/model.safetensors" back/model.safetensors && echo "$family.apr goes back to the same bytes"
        n_run=$n_family
        for run in "ref $family" "host $family" "host $family.apr" "host $family.gguf"; do
            n_run=$((n_run + 1))
            check_run "${run%% *}" "${run#* }" "$folder/golden.safetensors"
        done
        rm -rf "$family" "$family.apr" "$family.gguf" back
        n_family=$((n_family + 1))
    done
}
check_run() { # DEVICE MODEL RECORDING
    [ -e "$2" ] || return 0 # llama.cpp has no such architecture
    if [ $((n_run % every)) -ne 0 ]; then
        grep "^$2 on $1: " "$expected"
    else
        aprrun golden --threads 1 --device "$1" "$2" "$3" >figures && echo "$2 on $1: $(grep -c ' pass ' figures) figures"
    fi
}
