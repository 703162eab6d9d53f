# runs of one output agree on the importance; another one of the same size is another
aprrun imatrix -q data/tiny-qwen2 data/heldout.txt -o a.gguf --ctx 64 --chunks 2 >/dev/null
aprrun imatrix -q data/tiny-qwen2 data/heldout.txt -o b.gguf --ctx 64 --chunk 2 --chunks 2 >/dev/null
mkdir other && mv b.gguf other/a.gguf
aprquant -q --to q4_k --imatrix a.gguf --part 1/2 data/tiny-qwen2 out.gguf >/dev/null
aprquant -q --to q4_k --imatrix other/a.gguf --part 2/2 data/tiny-qwen2 out.gguf 2>&1 >/dev/null | grep -o 'importance of 14 tensors' | head -n 1
aprquant -q --to q4_k --imatrix a.gguf --part 2/2 data/tiny-qwen2 out.gguf >/dev/null && aprquant -q --to q4_k --imatrix a.gguf --finish data/tiny-qwen2 out.gguf >/dev/null
aprquant -q --to q4_k --imatrix a.gguf data/tiny-qwen2 whole.gguf >/dev/null
cmp out.gguf whole.gguf && echo 'the same bytes'
