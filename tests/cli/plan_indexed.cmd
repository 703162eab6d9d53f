aprplan --gpu h200 --dtype q4_k_m --ctx 163840 data/shapes/deepseek-v3.2.json | grep latent
aprrun bench --synthetic data/shapes/glm-5.json --dtype q4_k_m 2>&1; echo $?
aprplan --gpu h200 --gpus 8 data/shapes/deepseek-v3.2.json | grep 'aprrun cannot'; aprplan --gpu h200 --gpus 8 --json data/shapes/deepseek-v3.2.json | grep -o '"lacks":"[^"]*"'
