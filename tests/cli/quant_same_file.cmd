cp data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf a.gguf; aprquant --to f16 -f a.gguf a.gguf
