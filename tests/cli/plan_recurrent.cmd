aprplan --gpu rtx4090 --dtype q4_k_m --ctx 8192 --sequences 4 data/shapes/nemotron-3-nano-30b-a3b.json | grep -E 'keys|recurrent|experts|fits|context'
aprplan --gpu rtx5090 --dtype q4_k_m --ctx 8192 --json data/shapes/qwen3.5-27b.json | grep -o '"id":"recurrent"[^}]*'
aprplan --host --ctx 8192 data/shapes/lfm2-1.2b.json | grep recurrent
