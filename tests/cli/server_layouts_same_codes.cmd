# NVFP4 between GGUF, compressed-tensors and modelopt: the same codes and scales, byte for byte and in every direction
for model in dense moe; do
    make_family data/servers/$model $model
    mkdir a b # a GGUF has the name of its folder
    aprquant -q --to nvfp4 --layout compressed-tensors $model a/m/ >/dev/null
    aprquant -q --to nvfp4 --layout modelopt $model b/m/ >/dev/null
    # one layout from the other is what is written from the source
    aprquant -q --to nvfp4 --layout modelopt a/m again/ >/dev/null && cmp b/m/model.safetensors again/model.safetensors && rm -r again
    aprquant -q --to nvfp4 --layout compressed-tensors b/m again/ >/dev/null && cmp a/m/model.safetensors again/model.safetensors && rm -r again
    # both make the same GGUF, and that makes both again; norms are F32 there
    aprconv convert -q a/m a.gguf >/dev/null && aprconv convert -q b/m b.gguf >/dev/null && cmp a.gguf b.gguf
    for layout in compressed-tensors modelopt; do
        aprquant --to nvfp4 --layout $layout a.gguf from-$layout/ | grep 'tensors:\|layout'
    done
    aprconv diff --json a/m from-compressed-tensors | grep -o '"n_same_bytes":[0-9]*,"n_same_values":[0-9]*'
    aprconv diff --json b/m from-modelopt | grep -o '"n_same_bytes":[0-9]*,"n_same_values":[0-9]*'
    aprconv convert -q from-compressed-tensors a2.gguf >/dev/null && aprconv convert -q from-modelopt b2.gguf >/dev/null
    for gguf in a2 b2; do aprconv diff a.gguf $gguf.gguf | tail -n 1; done
    aprquant --dry-run --to nvfp4 --layout modelopt a.gguf never/ | grep -c 'holds the same codes and scales'
    rm -rf a b from-* *.gguf
done
# MXFP4 as well
aprquant -q --to mxfp4 --layout compressed-tensors dense mx/ >/dev/null && aprconv convert -q mx mx.gguf >/dev/null
aprquant -q --to mxfp4 --layout compressed-tensors mx.gguf mx2/ >/dev/null && aprconv diff --json mx mx2 | grep -o '"n_same_bytes":[0-9]*,"n_same_values":[0-9]*'
