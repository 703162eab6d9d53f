aprconv show data/lora/llama
aprconv show data/lora/qwen2-dora --filter 'layers\.0'
aprconv show data/lora/llama-second --json --no-tensors
make_family data/families/llama llama
aprconv convert --lora data/lora/llama llama m.apr --dry-run | grep -e LoRA -e merged
aprconv convert --lora data/lora/llama llama m.apr --json | tr '{' '\n' | grep rank
aprconv show m.apr --no-tensors | grep aprkit
