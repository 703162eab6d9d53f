# ended by signals while the model writes its text, while that is read and while tensors are made: what is done is kept, and the bytes are the same
export OMP_NUM_THREADS=1
own() { aprquant -q --method ldlq --window 128 --tokens 4096 --rounds 2 --to q4_k_m "$@"; }
own data/tiny-qwen2 whole.gguf >/dev/null
# a second time, in a run that is ended while it writes: 1,024 tokens or more are kept
for wait in 0.6 1.2 1.2; do
    timeout --preserve-status -s INT $wait aprquant -q --method ldlq --window 128 --tokens 4096 --rounds 2 --to q4_k_m --resume data/tiny-qwen2 parts.gguf >/dev/null 2>said
    code=$?
    [ $code -eq 0 ] && break
    if [ -d parts.gguf.resume ]; then wanted='with [0-9]+ % kept in parts.gguf.resume; run the same command to continue'; else wanted='; nothing was written'; fi
    [ $code -eq 130 ] && grep -qE "^aprquant: stopped ?$wanted$" said || cat said
done
[ -f parts.gguf ] || own --resume data/tiny-qwen2 parts.gguf >/dev/null
cmp whole.gguf parts.gguf && echo 'the same bytes'
ls
