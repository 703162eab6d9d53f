make_family data/families/llama llama
aprquant --to q8_0 llama q.gguf >/dev/null
say() { "$@" 2>&1; echo "exit $?"; }
say aprconv convert data/lora/llama out.apr
say aprconv convert --lora data/lora/llama data/tiny-llama out.apr
say aprconv convert --lora data/lora/qwen2-dora llama out.apr
say aprconv convert --lora data/lora/nowhere llama out.apr
say aprconv convert --lora data/lora llama out.apr
say aprconv convert --lora q.gguf llama out.apr
say aprconv convert --lora data/lora/llama-adapter.gguf data/tiny-qwen2 out.apr
say aprconv convert --lora data/lora/llama:half llama out.apr
say aprconv convert --lora data/lora/llama:inf llama out.apr
say aprconv convert --lora data/lora/qwen2-dora:0.5 llama out.apr
say aprconv convert --lora data/lora/llama q.gguf out.gguf
say aprquant --to q4_0 --lora data/lora/llama q.gguf out.gguf
say aprquant --tensor '[qv]_proj=bf16' --lora data/lora/llama q.gguf out.gguf | grep -v ' s, '
ls
