# other format, other types: figures to three digits, as sums may run in another order elsewhere
aprquant -q --to q4_k_m data/tiny-qwen2 m.gguf >/dev/null 2>&1
aprrun kld -q m.gguf --ref data/tiny-qwen2 data/heldout.txt --kv f32 --max-windows 4 --stats >table 2>stats || exit
cut -c 1-28 table | grep -vE '^ *(median|99|largest  )'
grep -oE 'memory on the host: planned [0-9.]+ MiB \(without [0-9.]+ MiB of weights mapped from files\), measured' stats | sed 's/[0-9.]* MiB/N/g'
aprrun kld -q m.gguf --ref data/tiny-qwen2 data/heldout.txt --kv f32 --max-windows 4 --json >a
grep -oE '"(window|windows|positions|tokens_scored)":[0-9]+|"on":"host"|"as_planned":true|"largest":\{"window":[0-9]+,"position":[0-9]+,"token":[0-9]+' a
aprrun kld -q m.gguf --ref data/tiny-qwen2 data/heldout.txt --kv f32 --window 32 --max-windows 24 --json >a
aprrun kld -q m.gguf --ref data/tiny-qwen2 data/heldout.txt --kv f32 --window 32 --max-windows 24 --json --seed 1 >b
for key in kl_mean kl_mean_95; do [ "$(grep -o "\"$key\":[^,]*" a)" = "$(grep -o "\"$key\":[^,]*" b)" ] && echo "$key the same" || echo "$key another"; done
