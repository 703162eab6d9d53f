# FP8 matrices whose scales config.json promises and the file lacks: refused with the tensor's name, not multiplied as they are
for layout in fp8-block fp8-block-experts fp8-static fbgemm-fp8 ct-fp8-channel modelopt-fp8; do
    refused=0 n=$(head -c 20000 data/packed/$layout/model.safetensors | grep -ao '"data_offsets"' | wc -l)
    for i in $(seq 0 $((n - 1))); do
        rm -rf edited && cp -r data/packed/$layout edited && chmod -R u+w edited || exit
        make_edited data/packed/$layout/model.safetensors drop $i edited/model.safetensors || exit
        aprconv check edited >said 2>&1 && continue
        grep -qE "is FP8 as config.json's quantization_config says, but its scales \(.*\) are missing" said && refused=$((refused + 1))
    done
    echo "$layout: $refused of $n tensors are scales that are missed"
done
