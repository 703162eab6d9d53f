aprplan --gpu h200 --dtype q4_k_m --ctx 131072 data/shapes/llama4-scout.json | grep -E 'keys|fits'
