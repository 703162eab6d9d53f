# each has its sentence and its status
say() { "$@" 2>&1 >/dev/null | head -n 1; "$@" >/dev/null 2>&1; echo "= $?"; }
head -c 300 data/heldout.txt >short.txt
say aprrun imatrix data/tiny-qwen2 data/heldout.txt
say aprrun imatrix data/tiny-qwen2 -o x.gguf
say aprrun imatrix data/tiny-qwen2 short.txt -o x.gguf
say aprrun imatrix --show data/heldout.txt
say aprrun imatrix --show data/tiny-qwen2/model.safetensors
touch there.gguf
say aprrun imatrix data/tiny-qwen2 data/heldout.txt -o there.gguf --ctx 64 --chunks 1
head -c 3000 data/heldout.txt >own.txt && cp own.txt same.txt
say aprrun imatrix data/tiny-qwen2 own.txt -o own.txt -f --ctx 64 --chunks 1
cmp own.txt same.txt && echo 'the text stays'
say aprquant --to q4_0 --imatrix data/imatrix/experts.gguf data/tiny-llama out.gguf
say aprquant --to q4_k --imatrix data/heldout.txt data/tiny-qwen2 out.gguf
ls x.gguf out.gguf 2>/dev/null || echo 'nothing is written'
