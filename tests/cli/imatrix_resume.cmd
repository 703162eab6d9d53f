# a run that was killed goes on where it was; what it was begun with is asked for
make() { aprrun imatrix -q data/tiny-qwen2 data/heldout.txt --ctx 32 --chunks 250 --threads 1 "$@"; }
make -o whole.gguf | head -n 1
aprrun imatrix -q data/tiny-qwen2 data/heldout.txt --ctx 32 --chunks 250 --threads 1 -o part.gguf --resume --save-frequency 1 >/dev/null 2>&1 &
run=$!
i=0; while [ ! -e part.gguf.resume ] && [ $i -lt 3000000 ]; do i=$((i + 1)); done
kill -9 $run; wait $run 2>/dev/null
[ -e part.gguf ] && echo 'it was too fast to be killed'
aprrun imatrix --show part.gguf.resume | head -n 1 | grep -oE 'windows of 32 tokens, unfinished'
make -o part.gguf --resume --chunk 1 2>&1 | sed 's/started with .*: use/started with ...: use/'
make -o part.gguf --resume --kv f32 2>&1
mv part.gguf.resume kept
at=$(($(wc -c <kept) / 2)) # a bit that changes meanwhile
changed=$(printf %o $((($(od -An -tu1 -j $at -N 1 kept) + 1) % 256)))
{ head -c $at kept; printf "\\$changed"; tail -c +$((at + 2)) kept; } >part.gguf.resume
make -o part.gguf --resume 2>&1
mv kept part.gguf.resume
make -o part.gguf --resume | head -n 1
cmp whole.gguf part.gguf && echo 'the same bytes'
ls part.gguf.resume 2>/dev/null || echo 'and nothing besides'
