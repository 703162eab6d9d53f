# a mixture whose layers all have experts states no width of a dense feed-forward, and needs none in GGUF
mkdir source
sed '/"intermediate_size"/d' data/families/qwen3_5_moe/config.json >source/config.json
cp data/families/qwen3_5_moe/tensors.json source/
make_family source model && aprconv convert model model.gguf 2>&1 | grep -c 'intermediate_size'
aprrun golden --threads 1 --device host model.gguf data/families/qwen3_5_moe/golden.safetensors | grep -c ' pass '
