# .bin as torch made it, in one file and in two (one of them of the old layout): golden as it is, as APR, as GGUF, and as safetensors
golden() { aprrun golden "$1" data/families/llama/golden.safetensors >figures && echo "$1: $(grep -c ' pass ' figures) figures"; }
make_family data/families/llama llama
for kind in bin bins; do
    mkdir $kind && cp data/containers/$kind/* data/families/llama/config.json $kind
    golden $kind
    aprconv convert $kind $kind.apr >/dev/null && golden $kind.apr
    aprconv convert $kind $kind.gguf >/dev/null && golden $kind.gguf
    aprconv convert $kind.apr $kind-hf/ >/dev/null && golden $kind-hf
    aprconv diff $kind-hf llama | grep 'tensors in both'
done
aprconv show bin | sed -n '2,3p'
aprconv show data/containers/odd/new.pt | sed -n '/^Tensors/,$p'
aprconv convert data/containers/odd/new.pt odd.apr | sed 3q
aprquant --to q8_0 bin q.gguf >/dev/null && aprquant --to q8_0 llama r.gguf >/dev/null && aprconv diff q.gguf r.gguf | grep 'tensors in both'
# what is safetensors goes first, and the other file is named
cp bin/pytorch_model.bin llama && aprconv show llama | sed -n '2,4p'
