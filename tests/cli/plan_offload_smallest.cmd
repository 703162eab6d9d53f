# what is suggested fits, and one layer fewer does not
aprplan --vram 12G --dtype q8_0 data/shapes/qwen3-30b-a3b.json | tail -n 1
aprplan --gpu rtx4090 --ctx 8192 data/shapes/qwen2.5-32b.json | tail -n 1
for n in 42 41; do aprplan --gpu rtx4090 --ctx 8192 --offload layers=$n data/shapes/qwen2.5-32b.json >/dev/null; echo "layers=$n: exit $?"; done
# nor where the host has not enough
aprplan --gpu rtx4090 --ctx 8192 --memory 32G data/shapes/qwen2.5-32b.json | tail -n 1
aprplan --gpu rtx4090 --ctx 8192 --json data/shapes/qwen2.5-32b.json | sed 's/.*"smallest_offload"/"smallest_offload"/'
