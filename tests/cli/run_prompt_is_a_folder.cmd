aprrun data/tiny-qwen2 -f data --json
