aprplan data/shapes/qwen3-8b.json
