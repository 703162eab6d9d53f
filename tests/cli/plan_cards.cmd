# cards of different size have shares of theirs; the layers are split so that the fuller is as empty as can be
aprplan --gpu rtx4090,rtx3060 --dtype q4_k_m data/shapes/qwen2.5-32b.json | grep -E 'GPU [01]|^fits|everything fits|^ *total|keys and'
aprplan --gpu rtx4090,rtx3060 --gpus 2 data/shapes/qwen3-8b.json 2>&1
# one memory of host and device
aprplan --gpu gb10 --dtype q8_0 --ctx 75000 data/shapes/gpt-oss-120b.json | grep -E 'system|total|fits|copy'
aprplan --gpu 'NVIDIA GB10' --offload experts data/shapes/gpt-oss-120b.json 2>&1
# slices, and cards that are too old
aprplan --gpu 'NVIDIA H100 80GB HBM3 MIG 1g.10gb' --dtype q4_k_m data/shapes/qwen3-8b.json | grep -E 'context|fits'
aprplan --gpu 'Tesla V100-SXM2-16GB' data/shapes/qwen3-8b.json
