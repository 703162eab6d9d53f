aprplan --gpu h200 --json data/tiny-qwen2
