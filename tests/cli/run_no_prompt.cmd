aprrun data/tiny-qwen2
