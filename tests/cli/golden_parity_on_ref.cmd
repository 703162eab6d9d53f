aprrun parity --device ref data/tiny-qwen2
