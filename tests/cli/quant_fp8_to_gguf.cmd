aprquant --to fp8 data/tiny-qwen2 out.gguf; code=$?; ls; exit $code
