aprquant --to q8_0 data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf out.apr; ls; exit 5
