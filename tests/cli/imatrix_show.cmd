# what llama-imatrix has made
aprrun imatrix --show data/imatrix/experts.gguf | sed -n '1,3p;/blk.2.*exps/p'
aprrun imatrix --show data/imatrix/llama.dat --json | grep -oE '"(format|texts|windows|entries)":[^,]*' | head -n 4
