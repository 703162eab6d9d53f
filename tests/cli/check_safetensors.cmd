aprconv check data/tiny-qwen2
