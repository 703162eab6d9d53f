head -c 100000 data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf >cut.gguf; aprconv check cut.gguf --json
