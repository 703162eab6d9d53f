# folders for servers, in every layout: each is read back as the matrices that were written, fits into a plan, and computes what
# transformers computes from what the layout's own library decodes (data/servers/make.py)
for model in dense moe; do
    make_family data/servers/$model $model
    for layout in "nvfp4 compressed-tensors" "nvfp4 modelopt" "mxfp4 compressed-tensors" "fp8 fp8" "int4 compressed-tensors --group 32" \
        "int4 gptq --group 64" "int4 awq --group 32"; do
        set -- $layout
        out=$model-$1-$2
        aprquant --to "$1" --layout "$2" ${3:+"$3" "$4"} $model $out/ >said || cat said
        sed -n '2,4p; /^  note/p; /multiple\|fuse/p' said
        aprconv show $out | grep 'layers.1.*\(k_proj\|0.down_proj\|mlp.down_proj\|mlp.gate\).weight' | sed 's/ *$//'
        aprconv check $out | grep values
        aprconv convert -q $out $out.apr >/dev/null && aprconv diff $out $out.apr | tail -n 1
        aprplan --host -c 32 $out >/dev/null || echo "no plan"
        for device in ref host; do
            aprrun golden --threads 1 --device $device $out data/servers/$out.safetensors >figures || cat figures
            echo "$out on $device: $(grep -c ' pass ' figures) figures"
        done
    done
done
# what servers look for in config.json and in the files: one layout of each producer
for out in moe-nvfp4-compressed-tensors dense-fp8-fp8 dense-int4-gptq dense-int4-awq; do
    tr -d '\n' <$out/config.json | grep -o '"quantization_config".*'
done
cat moe-nvfp4-modelopt/hf_quant_config.json && echo
head -c 100 dense-int4-awq/model.safetensors | grep -ao '"__metadata__":{[^}]*}'
# the layout that a type has without --layout; fp8 stays fp8 with a scale for each row
aprquant --to int4 --group 32 dense usual/ | sed -n 3p
for type in nvfp4 mxfp4; do aprquant -f --to $type dense usual/ | sed -n 3p; done
aprquant -q --to fp8 dense rows/ && aprquant -q --to fp8 --layout compressed-tensors dense rows2/ && cmp rows/model.safetensors rows2/model.safetensors && cmp rows/config.json rows2/config.json
# several files, and several runs that make one folder
aprquant -q --to int4 --layout gptq --max-shard 100KB dense shards/ >/dev/null
for part in 1/2 2/2; do aprquant -q --to int4 --layout gptq --max-shard 100KB --part $part dense parts/ >/dev/null; done
aprquant -q --to int4 --layout gptq --max-shard 100KB --finish dense parts/ >/dev/null
diff -r shards parts && grep -o '"weight_map"' shards/model.safetensors.index.json && ls shards | grep -c safetensors
