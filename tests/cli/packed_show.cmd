# every layout by its scheme, and a matrix that its skip list leaves out
for folder in data/packed/*/; do
    echo "$(basename "$folder")"
    aprconv show "$folder" | grep -E '  (model.layers.[01].(self_attn.[qk]_proj|mlp.(gate|down)_proj|mlp.experts.1.up_proj).weight|stripes.*weight|.*_blocks) '
done
# scales of FP8 weights are not tensors apart; with --parts they are
aprconv show data/packed/fp8-block 2>/dev/null | grep -c 'scale_inv'
for folder in data/packed/ct-fp8-channel; do
    aprconv show $folder | sed -n '/^Types/,/^$/p'
    aprconv show --parts $folder | grep -cE 'weight_scale +'
    aprconv show --json $folder | grep -oE '"schemes":[^]]*]'
done
