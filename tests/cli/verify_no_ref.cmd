aprrun verify data/tiny-qwen2
