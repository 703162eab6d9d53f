aprplan --vram 24 data/shapes/qwen3-8b.json
