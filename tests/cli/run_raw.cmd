aprrun data/tiny-qwen2 -p 'In the beginning'
