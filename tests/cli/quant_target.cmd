# types by what they do: no larger than the mixture, sums that are kept, and the same answer from what was kept
text='--calibration data/heldout.txt --window 16 --target-tokens 32'
bytes() { aprconv show --json "$1" | grep -oE '"tensor_bytes":[0-9]+' | cut -d: -f2; }
aprquant --to q4_k_m data/tiny-qwen2 mixture.gguf >/dev/null 2>&1
most=$(bytes mixture.gguf)
aprquant --target-size "$most" $text --state kept.json data/tiny-qwen2 out.gguf >first || exit
[ "$(bytes out.gguf)" -le "$most" ] && echo 'no larger than the mixture'
head -c 12 kept.json && echo
grep -E '^  types by|^  tensor |blk.0.ffn_down|together' first | sed -E 's/[0-9.e-]+ by their sum.*on/N by their sum; N on/; s/ +i?q[0-9]_[0-9a-z]+ +[0-9.]+ KiB.*/  TYPE, SIZE, DAMAGE/; s/^(  tensor) .*/\1/'
aprquant --target-size "$most" $text --state kept.json -f data/tiny-qwen2 again.gguf | grep -oE '[0-9]+ of [0-9]+ figures came from' | awk '{print $1 == $3 ? "all figures were kept" : "not all"}'
cmp out.gguf again.gguf && echo 'the same file'
aprquant --target-size "$most" $text --state kept.json --json -f data/tiny-qwen2 again.gguf | grep -oE '"(kl_sum|kl_held|tokens|window|tokens_held)":|"figures_measured":0'
sed -E 's/,"q6_k":[^,}]*//' kept.json >some.json # as a run that was killed leaves it
aprquant --target-size "$most" $text --state some.json -f data/tiny-qwen2 again.gguf | grep -oE '[0-9]+ of [0-9]+ figures came from' | awk '{print $1 < $3 ? "the others were measured" : "none was"}'
cmp kept.json some.json && cmp out.gguf again.gguf && echo 'the same table, and the same file'
cp kept.json state.gguf
for state in state.gguf new.gguf; do
    aprquant -f --target-size "$most" $text --state $state data/tiny-qwen2 $state 2>&1 >no.out | sed 's/^aprquant: //'
    if [ -e $state ]; then cmp kept.json $state && echo 'the figures stay'; else echo 'nothing is written'; fi
done
echo '--- experts of a layer together'
make_family data/families/qwen3_moe qwen3_moe
# a tokenizer of one token a character, by their bytes
awk 'BEGIN {
    for (i = 33; i < 127; i++) vocab = vocab sprintf("\"%s%c\":%d,", i == 34 || i == 92 ? "\\" : "", i, n++)
    printf "{\"version\":\"1.0\",\"added_tokens\":[],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    printf "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{%s\"\\u0120\":%d,\"\\u010a\":%d},\"merges\":[]}}", vocab, n, n + 1
}' >qwen3_moe/tokenizer.json
aprquant --target-bpw 9 $text --tensor 'v_proj=q8_0' qwen3_moe moe.apr >moe 2>&1 || { cat moe; exit 1; }
grep -oE 'model.layers.0.mlp.experts.\*.[a-z]+_proj.weight' moe | sort -u
grep -c 'v_proj' moe
echo '--- a divergence'
aprquant --target-kld 0.01 $text --state kept.json --json -f data/tiny-qwen2 fine.gguf >fine
aprquant --target-kld 0.1 $text --state kept.json --json -f data/tiny-qwen2 coarse.gguf >coarse
held() { grep -oE '"kl_held":[0-9.e-]+' "$1" | cut -d: -f2; }
[ "$(bytes fine.gguf)" -gt "$(bytes coarse.gguf)" ] && echo 'less divergence takes more bytes'
awk -v a="$(held fine)" -v b="$(held coarse)" 'BEGIN {print (a <= 0.01 && b <= 0.1 && a < b) ? "both within their targets" : "not within: " a ", " b}'
echo '--- refusals'
try() { aprquant "$@" data/tiny-qwen2 no.gguf >no.out 2>no.err; echo "$?: $(sed 's/^aprquant: //; s/[0-9]*\.[0-9]*[1-9]/N/g' no.err)"; [ ! -e no.gguf ] || echo 'it was written'; }
try --target-bpw 1 $text --state kept.json
try --target-kld 1e-7 $text --state kept.json
try --target-bpw 5 --target-size 1M $text
try --target-bpw 5
try --to q4_k --state kept.json
try --target-bpw 5 --calibration data/heldout.txt --window 16 --target-tokens 64 --state kept.json | sed -E 's/[0-9a-f]{8}/C/g'
printf 'short' >short.txt
try --target-bpw 5 --calibration short.txt
printf '{"damages":{"terms":"x"}}' >bad.json
try --target-bpw 5 $text --state bad.json
