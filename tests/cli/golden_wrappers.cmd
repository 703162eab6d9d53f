# every family inside a larger model, as hubs have it: under each prefix in turn, with towers that have biases, a projector, and a layer of
# multi-token prediction. The text part is planned, run, and converted; the APR brings all of it back, byte for byte; the GGUF has text alone
set -- lm_model model_lm text_model thinker base
for folder in data/families/*/; do
    family=$(basename "$folder")
    style=$1
    shift
    set -- "$@" "$style"
    make_family "$folder" plain && make_wrapper plain "$style" "$family" || exit 1
    aprplan --vram 8G -c 64 "$family" >/dev/null || echo "$family: not planned"
    aprconv convert "$family" "$family.apr" >/dev/null || exit 1
    aprconv convert "$family.apr" back/ >/dev/null || exit 1
    cmp "$family/model.safetensors" back/model.safetensors || echo "$family.apr does not go back"
    aprconv convert "$family" "$family.gguf" >out || exit 1
    left=$(sed -n 's/.*left out: \([0-9]*\) tensor.*/\1/p' out)
    for model in "$family" "$family.apr" "$family.gguf"; do
        aprrun golden --threads 1 --device host "$model" "$folder/golden.safetensors" >figures ||
            echo "$model: $(grep -c FAIL figures) figures differ"
    done
    echo "$family as $style: $(grep -c ' pass ' figures) figures, $left tensors left out"
    rm -rf plain back "$family" "$family.apr" "$family.gguf"
done
