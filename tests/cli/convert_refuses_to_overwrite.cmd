echo precious >model.apr
aprconv gguf2apr data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf model.apr
code=$?
cat model.apr
exit $code
