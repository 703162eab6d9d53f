# two matrices, one as GPTQ packs and one in bytes, and a norm; a part that is missing is damage
mkdir packed && cp data/tiny-qwen2/config.json packed/
write() { { printf "\\$(printf %o $((${#1} % 256)))\\$(printf %o $((${#1} / 256)))\0\0\0\0\0\0%s" "$1"; printf "%0$2d" 0; } >packed/model.safetensors; }
a='"model.layers.0.mlp.up_proj.qweight":{"dtype":"I32","shape":[8,8],"data_offsets":[0,256]},"model.layers.0.mlp.up_proj.qzeros":{"dtype":"I32","shape":[2,1],"data_offsets":[256,264]}'
b='"model.layers.0.mlp.up_proj.scales":{"dtype":"F16","shape":[2,8],"data_offsets":[264,296]}'
c='"model.norm.weight":{"dtype":"F16","shape":[64],"data_offsets":[296,424]},"model.layers.0.mlp.down_proj.weight":{"dtype":"I8","shape":[4,16],"data_offsets":[424,488]},"model.layers.0.mlp.down_proj.weight_scale":{"dtype":"F16","shape":[4,1],"data_offsets":[488,496]}'
write "{$a,$b,$c}" 496
aprconv show packed --no-metadata | sed '/^Hyper/,/^Types/d'
aprconv show packed --no-metadata --parts --filter up_proj | sed -n '/^Tensors/,$p'
aprconv show packed --json | grep -o '"n_weights":[^,]*,"bits_per_weight":[^,]*\|"schemes":.*,"tensors"\|"part_of":"[^"]*"\|"matrices":.*'
write "{$a,$(echo "$c" | sed 's/296,424/264,392/; s/424,488/392,456/; s/488,496/456,464/')}" 464
aprconv show packed 2>&1; echo $?
sed -i 's/"model_type"/"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 16}, "model_type"/' packed/config.json
write "{$a,$b,$c}" 496
aprconv show packed 2>&1; echo $?
