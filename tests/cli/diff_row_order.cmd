aprconv gguf2apr data/llama-rows.gguf model.apr >/dev/null
aprconv diff data/llama-rows.gguf model.apr --all
printf X | dd of=model.apr bs=1 seek=$(($(wc -c <model.apr) - 63)) conv=notrunc 2>/dev/null
aprconv diff model.apr data/llama-rows.gguf
