aprplan --gpu h200 --no-direct --dtype q4_k_m data/shapes/qwen3-30b-a3b.json | grep -E 'experts|copies'
