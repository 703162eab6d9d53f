# the same adapters with each other's factors are another input
make_family data/families/llama llama
part() { aprquant -q --to q8_0 "$@" llama out.gguf 2>&1 >/dev/null | grep -o "started with 'adapter 1, .*'adapter 1," | sed 's/[0-9a-f]\{8\}/CRC/g; s/0x[0-9a-fp+-]*/FACTOR/g'; }
part --lora data/lora/llama:1 --lora data/lora/llama-second:2 --part 1/2
part --lora data/lora/llama-second:1 --lora data/lora/llama:2 --part 2/2
part --lora data/lora/llama:1 --lora data/lora/llama-second:2 --part 2/2
part --lora data/lora/llama:1 --lora data/lora/llama-second:2 --finish
aprquant -q --to q8_0 --lora data/lora/llama:1 --lora data/lora/llama-second:2 llama whole.gguf >/dev/null
cmp out.gguf whole.gguf && echo 'the same bytes'
