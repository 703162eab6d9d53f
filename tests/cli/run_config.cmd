aprrun data/shapes/qwen3-8b.json -p a
