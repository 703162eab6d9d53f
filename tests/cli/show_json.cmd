aprconv show data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf --json --filter 'blk.0.attn_q' --no-metadata
