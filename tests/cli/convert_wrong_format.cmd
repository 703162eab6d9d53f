aprconv st2apr data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf model.apr
