# a 70B in F16 on two cards of 80 GB, on two parts of one of 141 GB, and what neither is enough for
aprplan --gpu h100 --gpus 2 --dtype f16 data/shapes/llama-3.1-70b.json
aprplan --gpu h200 --gpus 0,0 --dtype f16 data/shapes/llama-3.1-70b.json | grep -E 'GPU|total|headroom|fit'
aprplan --gpu h100 --dtype f16 --json --gpus 2 --offload layers=20 data/shapes/llama-3.1-70b.json | tr '{' '\n' | grep -E '"fits"|"id":"kv"|per_token'
