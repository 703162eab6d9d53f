aprrun data/tiny-qwen2 --chat -p 'Recite Ge1:1'
