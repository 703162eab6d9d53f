# what a GGUF makes of every layout: the type that holds the same codes and scales, or the decoded values, and what it says of it
for folder in data/packed/awq/ data/packed/bnb-*/ data/packed/ct-*/ data/packed/fbgemm-*/ data/packed/fp8-*/ data/packed/gptq-*/ \
    data/packed/modelopt-*/ data/packed/mxfp4-*/; do
    name=$(basename "$folder")
    echo "$name"
    aprconv convert "$folder" "$name.gguf" 2>&1 |
        sed -nE 's/^(  (lossless|same numbers|library.s numbers|cost): [0-9]+ matri[a-z]+) of [^;]* (as|to) ([a-z0-9_]+)(;.*)?$/\1 \3 \4/p'
done
# where the library does not round its products to the type of its scales, the model is the same
for name in bnb-fp4 bnb-nf4 bnb-nf4-nested ct-int4-experts ct-int8-asym ct-mxfp4 ct-nvfp4 gptq-8 mxfp4-stack; do
    for device in ref host; do
        aprrun golden --threads 1 --device $device $name.gguf data/packed/$name/golden.safetensors >figures || cat figures
        echo "$name.gguf on $device: $(grep -c ' pass ' figures) figures"
    done
done
