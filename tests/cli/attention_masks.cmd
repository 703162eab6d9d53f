# published GPT-2 and Pythia store their causal masks: they are left out of a GGUF, with a note, kept in APR, and ignored by runs
with_masks() { # FAMILY PREFIX
    mkdir "masked-$1" && cp "data/families/$1/config.json" "masked-$1" &&
        sed "s/\"tensors\": {/&\n \"$2.bias\": [[1, 1, 8, 8], 0, 1],\n \"$2.masked_bias\": [[], 0, 1],\n \"$2.rotary_emb.inv_freq\": [[3], 0, 1],/" \
            "data/families/$1/tensors.json" >"masked-$1/tensors.json" && make_family "masked-$1" "$1"
}
with_masks gpt2 transformer.h.1.attn && with_masks gpt_neox gpt_neox.layers.2.attention || exit 1
for family in gpt2 gpt_neox; do
    aprconv convert $family $family.gguf | grep 'left out'
    aprconv convert -q $family $family.apr && aprconv convert -q $family.apr back/ && cmp $family/model.safetensors back/model.safetensors &&
        echo "$family.apr goes back to the same bytes"
    aprplan --host -c 64 $family >/dev/null; echo "planned: $?"
    for model in $family $family.apr $family.gguf; do
        aprrun golden --threads 1 --device host $model "data/families/$family/golden.safetensors" >figures && echo "$model: $(grep -c ' pass ' figures) figures"
    done
    rm -r back
done
# a real bias is none of them
aprconv show --json gpt2.gguf | grep -o '"name":"blk.1.attn_[a-z]*.bias"'
