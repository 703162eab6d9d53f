# which programs load a model, and what stands in the way (tests/compat.py compares the verdicts with the programs)
aprconv compat data/tiny-qwen2
aprconv compat data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf
aprconv compat data/gguf/big-endian.gguf
sed 's/\x04\x00\x00\x00\x00\x00\x00\x00gpt2/\x04\x00\x00\x00\x00\x00\x00\x00gptX/' data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf >tokenizer.gguf && aprconv compat --for llama.cpp tokenizer.gguf; echo "exit $?"
make_family data/families/qwen3_5 qwen3_5 && aprconv convert qwen3_5 qwen3_5.gguf >/dev/null 2>&1 && aprconv compat --for llamacpp qwen3_5.gguf | grep -v gguf
aprconv convert --profile aprender data/tiny-qwen2 small.apr >/dev/null && aprconv compat --for realizar small.apr | tail -n 1; aprconv convert data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf large.apr >/dev/null && aprconv compat --for aprender large.apr | tail -n 4
aprconv compat --json --for mlx data/packed/modelopt-nvfp4; echo " exit $?"
aprconv compat --for ollama data/tiny-qwen2
