aprrun ppl data/tiny-qwen2 data/heldout.txt --kv f32
