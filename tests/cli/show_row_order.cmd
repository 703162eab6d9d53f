aprconv gguf2apr data/llama-rows.gguf model.apr >/dev/null
aprconv show model.apr --no-metadata
