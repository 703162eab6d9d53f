aprconv gguf2apr data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf model.apr >/dev/null && aprconv show model.apr --no-metadata
