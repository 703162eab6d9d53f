printf 'a\0b' | aprrun data/tiny-qwen2 --chat
