printf '\310\001\000\000\000\000\000\000%s' '{"a.weight":{"dtype":"F32","shape":[32,0],"data_offsets":[0,0]},"b.weight":{"dtype":"F32","shape":[2,32],"data_offsets":[0,256]},"c.weight":{"dtype":"F32","shape":[0,64],"data_offsets":[256,256]},"d.weight":{"dtype":"F32","shape":[3,0,64],"data_offsets":[256,256]},"e.weight":{"dtype":"F32","shape":[1099511627776,0],"data_offsets":[256,256]},"s":{"dtype":"F32","shape":[],"data_offsets":[256,260]},"v":{"dtype":"F32","shape":[0],"data_offsets":[260,260]}}' >empty.safetensors
head -c 260 /dev/zero >>empty.safetensors
for type in fp8 f16 bf16 f32 f64 q8_0 q4_0 q4_k q5_k q6_k mxfp4; do
    aprquant -q --tensor ".*=$type" empty.safetensors $type.apr >/dev/null || echo "$type: exit code $?"
    aprconv check $type.apr >/dev/null || echo "$type: not readable"
    case $type in fp8 | f16 | bf16 | f32)
        aprquant -q --tensor ".*=$type" empty.safetensors folder-$type >/dev/null || echo "$type to a folder: exit code $?"
        aprconv check folder-$type >/dev/null || echo "$type in a folder: not readable" ;;
    esac
    aprquant -q --tensor '.*=f32' $type.apr back-$type.apr >/dev/null || echo "$type and back: exit code $?"
    aprconv show back-$type.apr | sed -n '/^Tensors/,$p' >list
    [ -f first ] || cp list first
    cmp list first
done
cat first
