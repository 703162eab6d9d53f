# every layout by its scheme, and a matrix that its skip list leaves out
for folder in data/packed/*/; do
    echo "$(basename "$folder")"
    aprconv show "$folder" | grep -E '  (model.layers.[01].(self_attn.[qk]_proj|mlp.(gate|down)_proj|mlp.experts.1.up_proj).weight|stripes.*weight|.*_blocks) '
done
