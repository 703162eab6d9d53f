aprquant --to mxfp4 data/tiny-qwen2 m.apr >/dev/null; aprrun golden --checks tokens,logits m.apr data/tiny-qwen2/golden.json >/dev/null
