# what llama-imatrix has made
aprrun imatrix --show data/imatrix/experts.gguf | sed -n '1,3p;/blk.2.*exps/p'
aprconv show data/imatrix/experts.gguf | sed -n '1,3p;/blk.2.*exps/p'
for f in llama.dat llama.gguf gguf-py.gguf; do aprconv show data/imatrix/$f | head -n 1; aprconv show data/imatrix/$f --json | grep -oE '"(container|format|entries|window)":[^,]*' | paste -sd' '; done
aprconv show data/imatrix/gguf-py.gguf --filter ffn
aprquant --to q4_k --imatrix data/imatrix/gguf-py.gguf data/tiny-qwen2 by.gguf | grep 'importance from'
aprrun imatrix --show data/imatrix/llama.dat --json | grep -oE '"(format|texts|windows|entries)":[^,]*' | head -n 4
