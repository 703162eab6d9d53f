aprrun golden --checks tokens,nonsense data/tiny-qwen2 data/tiny-qwen2/golden.json
