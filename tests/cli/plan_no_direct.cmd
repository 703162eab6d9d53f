aprplan --vram 32G --no-direct --dtype mxfp4 data/shapes/qwen3.5-27b.json
