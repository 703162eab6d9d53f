aprquant data/tiny-qwen2 out.apr
