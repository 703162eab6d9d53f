aprrun data/tiny-qwen2 --chat -p 'Recite Ge1:1' --json | sed 's/"prompt_tokens_per_second.*//'
