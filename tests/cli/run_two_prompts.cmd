aprrun data/tiny-qwen2 -p a -f b
