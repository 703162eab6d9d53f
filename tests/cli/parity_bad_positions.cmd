aprrun parity --positions 5,5 data/tiny-qwen2
