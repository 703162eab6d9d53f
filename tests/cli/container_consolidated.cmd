# Meta's and Mistral's own layouts: golden as they lie, as APR, as GGUF, as a checkpoint; whose tensors are those of the checkpoint that they were made of
golden() { aprrun golden "$1" "data/families/$family/golden.safetensors" >figures && echo "$1: $(grep -c ' pass ' figures) figures"; }
for pair in mixtral:mixtral ministral3:ministral3 meta:llama; do
    kind=${pair%:*} family=${pair#*:}
    cp -r data/containers/$kind in-$kind
    make_family data/families/$family $kind-was
    golden in-$kind
    aprconv convert in-$kind $kind.apr >/dev/null && golden $kind.apr
    aprconv convert in-$kind $kind.gguf >/dev/null && golden $kind.gguf
    aprconv convert in-$kind $kind-hf/ >/dev/null && golden $kind-hf
    aprconv convert $kind.apr $kind-back/ >/dev/null && cmp $kind-hf/model.safetensors $kind-back/model.safetensors && echo "$kind.apr: the same checkpoint"
    aprconv diff $kind-hf $kind-was | grep 'tensors in both'
done
aprconv show in-meta | sed -n '2,3p'
aprconv show meta.apr | sed -n '2,7p'
aprconv show in-meta/consolidated.00.pth | sed -n '2,3p'
touch in-meta/consolidated.01.pth
aprconv show in-meta 2>&1; echo "exit $?"
