aprconv show --frobnicate data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf
