# without a text the model writes one itself: closer in the same bytes, always the same, and the output says so
export OMP_NUM_THREADS=2
own() { aprquant --method ldlq --window 128 --tokens 4096 --rounds 2 --to q4_k_m "$@"; }
mean() { aprrun kld -q $1 --ref data/tiny-qwen2 data/heldout.txt --window 128 --max-windows 12 --json | grep -oE '"kl_mean":[^,]*' | cut -d: -f2; }
aprquant --to q4_k_m data/tiny-qwen2 search.gguf >/dev/null
own data/tiny-qwen2 own.gguf | grep '^  ldlq'
awk -v a=$(mean search.gguf) -v b=$(mean own.gguf) 'BEGIN {print (b < 0.92 * a ? "closer" : "not closer: " a " -> " b)}'
OMP_NUM_THREADS=1 own data/tiny-qwen2 again.gguf >/dev/null && cmp own.gguf again.gguf && echo 'one thread, the same bytes'
own --dry-run data/tiny-qwen2 not.gguf | grep -oE 'calibrated with .*|a text of [0-9]+ windows at once'
own data/tiny-qwen2 own.apr --json | grep -oE '"(own_text|calibration|tokens)":[^,]*' | head -n 3
aprquant --to bf16 --allow-requantize own.apr own >/dev/null
for f in own.gguf own.apr own; do aprconv show $f 2>/dev/null | grep -E 'quantize.calibration.(text|tokens)' | tr -s ' '; done
aprconv show own.gguf | grep -cE 'quantize.calibration.crc32 +string +[0-9a-f]{8}$'
# of a text its name without folders, and the CRC-32 that zlib gives
mkdir texts && printf '123456789\n%.0s' $(seq 400) >texts/text.txt
aprquant --to q4_k_m --method ldlq --calibration texts/text.txt --window 128 --rounds 0 data/tiny-qwen2 by.gguf >/dev/null
aprconv show by.gguf | grep quantize.calibration.text | tr -s ' '
[ $(aprconv show by.gguf | sed -n 's/.*calibration.crc32 *string *//p') = $(gzip -c texts/text.txt | tail -c 8 | od -An -tx4 -N4 | tr -d ' ') ] && echo 'its CRC-32'
# runs of one output must have read the same text
aprquant --to q4_k_m --method ldlq --calibration texts/text.txt --window 128 --rounds 0 --part 1/2 data/tiny-qwen2 out.gguf >/dev/null
sed -i 's/5/x/' texts/text.txt
aprquant --to q4_k_m --method ldlq --calibration texts/text.txt --window 128 --rounds 0 --part 2/2 data/tiny-qwen2 out.gguf 2>&1 >/dev/null | grep -c "was started with 'input"
