aprrun data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf --chat -p 'Recite Ge1:1'
