aprconv diff data/tiny-qwen2 data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf --tolerance 0.5 --all | tail -n 3
