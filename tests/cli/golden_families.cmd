# a window of attention is no part of llama.cpp's llama: it goes along all the same, when asked for
for family in llama mistral qwen2 qwen3; do
    golden="data/families/$family/golden.safetensors"
    make_family "data/families/$family" "$family" || exit 1
    aprconv convert "$family" "$family.apr" >/dev/null 2>&1 || exit 1
    aprconv convert "$family" "$family.gguf" >/dev/null 2>&1 || exit 1
    for model in "$family" "$family.apr" "$family.gguf"; do
        for device in ref host; do
            aprrun golden --device $device "$model" "$golden" >figures && echo "$model on $device: $(grep -c ' pass ' figures) figures"
        done
    done
done
aprrun golden --device ref llama data/families/llama/golden.safetensors | tail -n 5 | sed 's/off by [0-9.e-]*/off by X/'
