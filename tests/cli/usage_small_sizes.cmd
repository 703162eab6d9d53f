aprrun data/tiny-qwen2 -p a --memory 16 2>&1; echo $?
aprrun data/tiny-qwen2 -p a --headroom 512 2>&1; echo $?
aprconv convert data/tiny-qwen2 out --max-shard 5 2>&1; echo $?
aprplan --vram 8G --headroom 0 --json data/shapes/qwen2.5-0.5b.json | grep -o '"fits":true'
