aprplan --host data/tiny-qwen2
