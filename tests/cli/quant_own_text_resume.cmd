# ended by signals while the model writes its text, while that is read and while tensors are made: what is done is kept, and the bytes are the same
export OMP_NUM_THREADS=1
own() { aprquant -q --method ldlq --window 128 --tokens 4096 --rounds 2 --to q4_k_m "$@"; }
own data/tiny-qwen2 whole.gguf >/dev/null
# a second time, in a run that is ended at any time: after 1,024 tokens or more, complete windows are kept
for wait in 0.6 1.2 1.2; do
    timeout --preserve-status -s INT $wait aprquant -q --method ldlq --window 128 --tokens 4096 --rounds 2 --to q4_k_m --resume data/tiny-qwen2 parts.gguf >/dev/null 2>said
    code=$?
    [ $code -eq 0 ] && break
    if [ -d parts.gguf.resume ]; then wanted='with [0-9]+ % kept in parts.gguf.resume; run the same command to continue'; else wanted='; nothing was written'; fi
    [ $code -eq 130 ] && grep -qE "^aprquant: stopped ?$wanted$" said || cat said
done
[ -f parts.gguf ] || own --resume data/tiny-qwen2 parts.gguf >/dev/null
cmp whole.gguf parts.gguf && echo 'the same bytes'
# ended when some of its 32 windows are kept, which the next run takes as they are; not those of a build whose text was another
windows() { sed -n '/^text of /{n;p;q}' text.gguf.resume/text 2>/dev/null || echo 0; }
for try in 1 2 3 4 5; do
    rm -rf text.gguf*
    aprquant -q --method ldlq --window 128 --tokens 4096 --rounds 2 --to q4_k_m --resume data/tiny-qwen2 text.gguf >/dev/null 2>said &
    until [ "$(windows)" -gt 0 ] 2>/dev/null; do kill -0 $! || break; sleep 0.02; done
    kill $!
    wait $! 2>/dev/null
    kept=$(windows)
    [ "$kept" -lt 32 ] && break
done
[ "$kept" -gt 0 ] && [ "$kept" -lt 32 ] && echo 'some windows are kept' || cat said
cp -r text.gguf.resume other.gguf.resume
sed -i '/^text of /{n;n;s/.*/7/}' other.gguf.resume/text
cp -r other.gguf.resume older.gguf.resume
sed -i 's/^aprkit text 2$/aprkit text 1/' older.gguf.resume/text
for f in text other older; do own --resume data/tiny-qwen2 $f.gguf >/dev/null; done
cmp whole.gguf text.gguf && echo 'the same bytes'
cmp -s whole.gguf other.gguf || echo 'others, by one token that was changed'
cmp whole.gguf older.gguf && echo 'the same bytes'
ls
