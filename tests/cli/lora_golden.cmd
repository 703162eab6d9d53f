# adapters made by PEFT, merged here, hold against what transformers computes from PEFT's own merge: in float32, in every container
merged() { # FAMILY ADAPTER
    [ -d "$1" ] || make_family "data/families/$1" "$1" || exit 1
    [ -f "$1.f32.apr" ] || aprquant --to f32 "$1" "$1.f32.apr" >/dev/null || exit 1
    for out in "m-$2.apr" "m-$2.gguf" "m-$2"; do
        aprconv convert --lora "data/lora/$2" "$1.f32.apr" "$out" >told || exit 1
        aprrun golden --threads 1 --device ref "$out" "data/lora/$2/golden.safetensors" >figures &&
            echo "$out: $(grep -c ' pass ' figures) figures"
    done
    grep LoRA told
}
merged llama llama
merged llama llama-second
merged qwen2 qwen2-dora
merged phi3 phi3-fused
# one after the other, the second at half its scale; and while bf16 becomes f32
aprquant --to f32 --lora data/lora/llama --lora data/lora/llama-second:0.5 llama both.gguf | grep LoRA
aprrun golden --threads 1 --device ref both.gguf data/lora/llama-second/golden-both.safetensors | grep -c ' pass '
# without the adapter it is another model
aprrun golden --threads 1 --device ref llama.f32.apr data/lora/llama/golden.safetensors | grep -c ' pass ' || true
# and run without a file of its own
for base in llama llama.f32.apr llama.gguf; do
    [ -e "$base" ] || aprconv convert llama "$base" >/dev/null || exit 1
    for device in ref host; do
        aprrun golden --threads 1 --device "$device" --lora data/lora/llama "$base" data/lora/llama/golden.safetensors 2>told >figures &&
            echo "$base with it on $device: $(grep -c ' pass ' figures) figures"
    done
done
cat told
