aprconv gguf2apr data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf model.apr >/dev/null
printf X | dd of=model.apr bs=1 seek=1000000 conv=notrunc 2>/dev/null
aprconv check model.apr --json
