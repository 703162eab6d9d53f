aprquant --to q8_0 --tensor 'down_proj' data/tiny-qwen2 out.apr
