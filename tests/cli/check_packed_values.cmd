# check decodes matrices whose numbers are in several tensors: a factor of zero that the others are divided by leaves no number
for kind in awq bnb-nf4 ct-int4-g32 ct-nvfp4 fp8-block gptq-4 mxfp4-stack; do
    echo "$kind: $(aprconv check data/packed/$kind 2>/dev/null | grep values)"
done
mkdir zero && cp data/packed/ct-nvfp4/config.json data/packed/ct-nvfp4/model.safetensors zero
header=$(od -An -t u8 -N 8 zero/model.safetensors)
at=$(grep -ao '"model.layers.0.mlp.down_proj.weight_global_scale":{[^}]*}' zero/model.safetensors | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
head -c 4 /dev/zero | dd of=zero/model.safetensors bs=1 seek=$((8 + header + at)) conv=notrunc 2>/dev/null
aprconv check zero 2>&1 | tail -n 4
echo "exit $(aprconv check zero >/dev/null 2>&1; echo $?)"
