aprplan --gpu rtx4090 --ctx 8192 data/shapes/qwen2.5-32b.json
