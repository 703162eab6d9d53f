# a merged and quantized model is the reference with the adapter in it, and not the reference without
make_family data/families/llama llama
aprquant --to q8_0 --lora data/lora/llama llama merged.gguf >/dev/null
aprrun verify --threads 1 --no-parity --tokens 4 merged.gguf --ref llama --lora data/lora/llama 2>told | tail -n 2 | head -n 1
cat told
aprrun verify --threads 1 --no-parity --tokens 4 merged.gguf --ref llama 2>/dev/null | tail -n 2 | head -n 1
