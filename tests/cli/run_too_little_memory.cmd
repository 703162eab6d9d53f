aprrun data/tiny-qwen2 -p a --memory 1M
