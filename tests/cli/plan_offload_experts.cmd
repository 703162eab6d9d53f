# the experts of a mixture on the host, everything else on a card that is too small for all of it
aprplan --vram 12G --offload experts --memory 32G --dtype q4_k_m data/shapes/qwen3-30b-a3b.json
