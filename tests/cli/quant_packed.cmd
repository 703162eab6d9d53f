# a checkpoint of two tensors that are packed as HQQ packs, which nothing here reads; config.json says nothing of it
put() {
    mkdir "$1" && cp data/tiny-qwen2/config.json "$1/"
    { printf "\\$(printf %o ${#2})\0\0\0\0\0\0\0%s" "$2"; printf '0123456789abcdef0123456789abcdef01234567'; } >"$1/model.safetensors"
}
put packed '{"model.layers.0.mlp.up_proj.W_q":{"dtype":"U8","shape":[2,16],"data_offsets":[0,32]},"model.layers.0.mlp.up_proj.scale":{"dtype":"F16","shape":[1,4],"data_offsets":[32,40]}}     '
aprquant --to q8_0 packed out.apr 2>&1; echo $?
aprconv convert packed out.gguf 2>&1; echo $?
aprrun packed -p a 2>&1; echo $?
ls out* 2>/dev/null
aprconv convert packed carried.apr | sed 's/  [0-9.]* s, .*/  (time)/'
aprconv convert carried.apr back >/dev/null && cmp packed/model.safetensors back/model.safetensors && echo identical
# the same as GPTQ packs, but without zero points
put lacking '{"model.layers.0.mlp.up_proj.qweight":{"dtype":"I32","shape":[2,4],"data_offsets":[0,32]},"model.layers.0.mlp.up_proj.scales":{"dtype":"F16","shape":[1,4],"data_offsets":[32,40]}}     '
aprconv convert lacking out.gguf 2>&1; echo $?
aprrun lacking -p a 2>&1; echo $?
