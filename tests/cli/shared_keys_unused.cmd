# published checkpoints of Gemma 3n have keys and values also in layers that use those of earlier ones: they travel, and are not used
mkdir with && cp data/families/gemma3n/config.json data/families/gemma3n/tensors.json with && cd with || exit 1
own='"model.layers.3.self_attn.k_norm.weight": [[32], 1, 0.2], "model.layers.3.self_attn.k_proj.weight": [[64, 64], 0, 0.1625],'
own="$own \"model.layers.3.self_attn.v_proj.weight\": [[64, 64], 0, 0.1625],"
sed -i "s/\"model.layers.3.self_attn.o_proj.weight\"/$own &/" tensors.json && cd .. && make_family with m || exit 1
aprconv convert m m.apr >/dev/null && aprconv convert m.apr back/ >/dev/null && cmp m/model.safetensors back/model.safetensors && echo same
aprconv convert m m.gguf >/dev/null && aprconv show m.gguf | grep -c 'blk.3.attn_[kv]'
for model in m m.apr m.gguf; do
    aprplan --vram 8G -c 64 $model >/dev/null && aprrun golden --threads 1 $model data/families/gemma3n/golden.safetensors | grep -c ' pass '
done
# a layer that has to have its own is not without them
sed -i 's/layers.1.self_attn.k_proj/layers.1.self_attn.k_other/' with/tensors.json && make_family with other && aprrun other -n 1 -p x
