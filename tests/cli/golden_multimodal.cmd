# whole vision-language models, as transformers computes their logits for text: the tower is left out where only text is written, and kept
# in APR; experts are stored in either order
for folder in data/multimodal/*/; do
    family=$(basename "$folder")
    golden="$folder/golden.safetensors"
    make_family "$folder" "$family" || exit 1
    aprconv convert "$family" "$family.apr" >/dev/null 2>&1 || exit 1
    aprconv convert "$family" "$family.gguf" | sed -n 's/^ *//; /left out/p'
    aprconv convert "$family.apr" back/ >/dev/null 2>&1 || exit 1
    cmp "$family/model.safetensors" back/model.safetensors && echo "$family.apr goes back to the same bytes"
    aprplan --json --vram 8G -c 64 "$family" >plan && aprplan --json --vram 8G -c 64 "$family/config.json" >config-plan
    echo "$family and its config.json: plans exit with $?"
    for run in "ref $family" "host $family" "host $family.apr" "host $family.gguf"; do
        set -- $run
        aprrun golden --threads 1 --device "$1" "$2" "$golden" >figures && echo "$2 on $1: $(grep -c ' pass ' figures) figures"
    done
    rm -rf "$family" "$family.apr" "$family.gguf" back
done
# where both axes of the experts have hidden_size elements, the order cannot be known
sed 's/"\(model.language_model.layers.[0-9].mlp.experts.gate_up_proj\)": \[\[6, [0-9]*, [0-9]*\]/"\1": [[6, 32, 32]/' \
    data/multimodal/qwen3_vl_moe/tensors.json >tensors.json
sed 's/"moe_intermediate_size": 20/"moe_intermediate_size": 16/' data/multimodal/qwen3_vl_moe/config.json >config.json
make_family . square && aprconv convert square square.gguf
