aprconv show --colour data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf
