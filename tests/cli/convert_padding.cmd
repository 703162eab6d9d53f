# zeros between a GGUF's tensors and after them come back with it: the answer, and that of --dry-run, say what the file takes
no_time() { sed 's/  [0-9.]* s, .*/  (time)/'; }
aprconv convert -q data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf in.gguf >/dev/null && head -c 3000000 /dev/zero >>in.gguf
aprconv convert -q in.gguf in.apr | grep padding
aprconv convert -n in.apr out.gguf | grep padding
ls out.gguf 2>/dev/null
aprconv convert in.apr out.gguf | no_time
aprconv convert --json -f in.apr out.gguf | grep -oE '"(file|padding)_bytes":[0-9]*'
cmp in.gguf out.gguf && wc -c <out.gguf
# of other tensors the file has other places
aprquant -q -t q8_0 --allow-requantize in.apr q.gguf | grep -c padding; :
