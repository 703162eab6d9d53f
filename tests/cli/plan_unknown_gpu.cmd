aprplan --gpu rtx9999 data/shapes/qwen3-8b.json
