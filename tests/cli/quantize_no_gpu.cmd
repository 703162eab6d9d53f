CUDA_VISIBLE_DEVICES= aprquant --quiet --device cuda --to q8_0 data/tiny-qwen2 out.gguf
code=$?
ls
exit $code
