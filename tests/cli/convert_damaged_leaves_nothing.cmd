head -c 700000 data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf >cut.gguf; aprconv gguf2apr cut.gguf model.apr; code=$?; ls; exit $code
