aprconv show data/tiny-qwen2/config.json
