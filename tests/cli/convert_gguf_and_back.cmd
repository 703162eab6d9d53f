aprconv gguf2apr data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf model.apr >/dev/null
aprconv apr2gguf model.apr model.gguf >/dev/null
cmp data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf model.gguf
aprconv gguf2apr data/llama-rows.gguf rows.apr >/dev/null
aprconv apr2gguf rows.apr rows.gguf >/dev/null
cmp data/llama-rows.gguf rows.gguf
ls
