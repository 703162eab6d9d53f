aprquant --to q9 data/tiny-qwen2 out.apr
