# value heads in ggml's order, latents in its pieces: held against the checkpoint, which goes the same way first; no vocabulary on either side
for family in qwen3_5 deepseek_v2; do
    make_family data/families/$family $family >/dev/null || exit 2
    aprquant -q --to q8_0 $family $family.gguf >/dev/null 2>&1 || exit 2
    aprconv convert -q $family.gguf $family.apr >/dev/null 2>&1 || exit 2
    aprrun verify -q --no-parity -n 2 $family.apr --ref $family >table || { cat table; exit 1; }
    grep -o 'note  tokenizers agree.*' table | sed 's/ *$//' | tr -s ' '
    tail -n 2 table | head -n 1
done
