# the integers of compressed-tensors: from the checkpoint and from APR as transformers computes from the
# values of the layout's library; back byte for byte; and quantized as its values in float32 are
for folder in data/packed/ct-int*/; do
    name=$(basename "$folder")
    aprconv convert "$folder" "$name.apr" >/dev/null 2>&1 && aprconv convert "$name.apr" back/ >/dev/null 2>&1 || exit 1
    for file in "$folder"model.safetensors "$folder"*config.json; do cmp "$file" "back/$(basename "$file")" || exit 1; done
    for run in "ref $folder" "host $folder" "host $name.apr"; do
        set -- $run
        aprrun golden --threads 1 --device "$1" "$2" "$folder/golden.safetensors" >figures || cat figures
        echo "$(basename "$2") on $1: $(grep -c ' pass ' figures) figures"
    done
    mkdir plain && aprquant --to f32 "$folder" "plain/$name.apr" >/dev/null 2>&1 || exit 1
    for type in q8_0 q4_k_m mxfp4; do
        aprquant --allow-requantize --to $type "$folder" stored.gguf >/dev/null 2>&1 || exit 1
        aprquant --to $type "plain/$name.apr" plain.gguf >/dev/null 2>&1 || exit 1
        cmp stored.gguf plain.gguf && echo "$name as $type"
        rm -f stored.gguf plain.gguf
    done
    rm -rf back plain "$name.apr"
done
