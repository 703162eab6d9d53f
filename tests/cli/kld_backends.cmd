# a model against itself in the plain loops: prompts in pieces, and token by token as they are decoded; within the bounds of the README
aprquant -q --to q4_k_m data/tiny-qwen2 m.gguf >/dev/null 2>&1
for batch in 128 1; do
    aprrun kld -q m.gguf --ref m.gguf --ref-device ref --batch $batch data/heldout.txt --window 128 --max-windows 2 --json >k || exit
    grep -oE '"(backend|backend_ref)":"[a-z]*"|"(batch|positions)":[0-9]+' k | paste -sd' '
    grep -oE '"(kl_mean|kl_max|same_top)":[^,]*' k | tr ':' ' ' |
        awk '/kl_mean/ {print ($2 > 0 && $2 <= 3.1e-6 ? "mean kept" : "mean " $2)}
             /same_top/ {print ($2 >= 0.998 ? "top token kept" : "top token " $2)}
             /kl_max/ {print ($2 < 1e-3 ? "largest small" : "largest " $2)}'
done
aprrun kld -q m.gguf --ref m.gguf --ref-device ref --batch 1 data/heldout.txt --window 64 --max-windows 2 >t || exit
grep 'run on' t
grep -oE '^ +KL divergence, mean +[0-9.]+e-[0-9]+ +[0-9.e-]+ to [0-9.e-]+$' t | sed 's/[0-9.]*e-[0-9]*/N/g; s/ \{2,\}/ /g'
aprrun kld -q m.gguf --ref m.gguf --device ref --ref-device ref data/heldout.txt --window 64 --max-windows 2 | grep -E 'run on|mean'
exec 2>&1
aprrun kld -q m.gguf --ref m.gguf --ref-device tpu data/heldout.txt; echo $?
# on two places each must fit by itself, with the logits between the two
aprrun kld -q m.gguf --ref m.gguf --ref-device ref data/heldout.txt --window 512 --batch 512 --memory 4M --json >j; echo $?
grep -oE 'both models at once need|use a reference of a smaller type' j
