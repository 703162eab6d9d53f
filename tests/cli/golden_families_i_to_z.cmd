# every family, as transformers computes it: from the checkpoint, from APR, from the GGUF that we write; and back, byte for byte
for folder in data/families/[i-z]*/; do
    family=$(basename "$folder")
    golden="$folder/golden.safetensors"
    make_family "$folder" "$family" || exit 1
    aprconv convert "$family" "$family.apr" >/dev/null 2>&1 || exit 1
    aprconv convert "$family" "$family.gguf" >/dev/null 2>refused || grep -o "ggml's is not supported .*" refused || exit 1
    aprconv convert "$family.apr" back/ >/dev/null 2>&1 || exit 1
    cmp "$family/model.safetensors" back/model.safetensors && echo "$family.apr goes back to the same bytes"
    for run in "ref $family" "host $family" "host $family.apr" "host $family.gguf"; do
        set -- $run
        [ -e "$2" ] || continue # llama.cpp has no such architecture
        aprrun golden --threads 1 --device "$1" "$2" "$golden" >figures && echo "$2 on $1: $(grep -c ' pass ' figures) figures"
    done
    rm -rf "$family" "$family.apr" "$family.gguf" back
done
