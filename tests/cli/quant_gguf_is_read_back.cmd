aprquant --to q8_0 data/tiny-qwen2 out.gguf >/dev/null && aprrun out.gguf --chat -p 'Recite Ge1:1'
