# --quiet: no summary, but what was lost or not done as asked
aprconv convert -q data/tiny-qwen2 out.apr; echo "exit $?"
aprquant -q --to f16 --saturate data/tiny-qwen2 out.gguf; echo "exit $?"
