aprconv show --no-metadata --filter='layers\.1\.self_attn\.[qk]_proj' -q -- data/tiny-qwen2
