aprplan --gpu rtx4090 --dtype q4_k_m --ctx 8192 data/shapes/llama-3.1-8b.json
