aprconv show data/tiny-qwen2 --no-tensors
