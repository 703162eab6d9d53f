# errors fed back: closer to the original in the same bytes, in every container, and the same again
head -c 20000 data/heldout.txt >text.txt
tail -c 11000 data/heldout.txt >other.txt
export OMP_NUM_THREADS=2
bytes() { aprconv show --json --no-metadata $1 | grep -oE "\"tensor_bytes\":[0-9]+" | head -n 1 | cut -d: -f2; }
feedback() { aprquant --method ldlq --calibration text.txt --window 128 --tokens 4096 --rounds 2 "$@"; }
mean() { aprrun kld -q $1 --ref data/tiny-qwen2 other.txt --window 128 --max-windows 12 --json | grep -oE '"kl_mean":[^,]*' | cut -d: -f2; }
for type in q4_k_m mxfp4; do
    aprquant --to $type data/tiny-qwen2 search.gguf >/dev/null 2>&1 && feedback --to $type data/tiny-qwen2 fed.gguf >fed.txt || exit
    [ $(bytes search.gguf) -eq $(bytes fed.gguf) ] && echo "$type: the same size"
    awk -v a=$(mean search.gguf) -v b=$(mean fed.gguf) 'BEGIN {print (b < 0.92 * a ? "closer" : "not closer: " a " -> " b)}'
    rm search.gguf && mv fed.gguf $type.gguf
done
sed -n 's/^  ldlq: /ldlq: /p' fed.txt
OMP_NUM_THREADS=1 feedback --to mxfp4 data/tiny-qwen2 again.gguf >/dev/null && cmp mxfp4.gguf again.gguf && echo 'one thread, the same bytes'
feedback --to mxfp4 --calibration-memory 600K data/tiny-qwen2 small.gguf | grep -oE 'calibration: [0-9]+ passes'
cmp mxfp4.gguf small.gguf && echo 'several passes, the same bytes'
feedback --to mxfp4 --resume data/tiny-qwen2 resumed.gguf >/dev/null && cmp mxfp4.gguf resumed.gguf && echo 'resumed, the same bytes'
feedback --to q4_k_m --sequential --json data/tiny-qwen2 fed.apr >fed.json && grep -oE '"(method|tokens|window|sequential|passes)":[^,]*' fed.json | sort -u
feedback --to q4_k_m --dry-run data/tiny-qwen2 fed.gguf | grep -E 'memory in addition|multiplications'
feedback --to q4_k_m --rounds 0 --dry-run --json data/tiny-qwen2 fed.gguf | grep -oE '"(rounds":[^,]*|multiplications":[0-9])'
aprconv check -q fed.apr
