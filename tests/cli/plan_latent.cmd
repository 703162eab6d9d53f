aprplan --gpu rtx5090 --ctx 32768 --dtype q4_k_m data/shapes/glm-4.7-flash.json
