# the same weights in another format; the perplexity is that of ppl
aprconv convert -q data/tiny-qwen2 m.apr >/dev/null
aprrun kld -q m.apr --ref data/tiny-qwen2 data/heldout.txt --kv f32 --window 256 --max-windows 2 --json >k || exit
grep -oE '"(kl_mean|kl_max|same_top|perplexity_ratio|perplexity_difference|kl_mean_95|same_top_95)":(\[[^]]*\]|[^,]*)' k
head -c 1600 data/heldout.txt >short.txt
aprrun kld -q m.apr --ref data/tiny-qwen2 short.txt --kv f32 >t && sed -n '3p;$p' t
n=$(grep -oE '[0-9]+ tokens' t | cut -d' ' -f1)
[ "$(sed -n 's/^ *perplexity *//p' t | cut -c 1-6)" = "$(aprrun ppl m.apr short.txt --kv f32 --window $n | cut -d' ' -f2 | cut -c 1-6)" ] && echo 'the perplexity of ppl'
