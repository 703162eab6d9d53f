# a checkpoint of two tensors, packed as HQQ packs, which nothing here reads; config.json says nothing of it
mkdir packed && cp data/tiny-qwen2/config.json packed/
header='{"model.layers.0.mlp.up_proj.W_q":{"dtype":"U8","shape":[8,4],"data_offsets":[0,32]},"model.layers.0.mlp.up_proj.scale":{"dtype":"F16","shape":[1,4],"data_offsets":[32,40]}}   '
{ printf "\\$(printf %o ${#header})\0\0\0\0\0\0\0%s" "$header"; printf '0123456789abcdef0123456789abcdef01234567'; } >packed/model.safetensors
aprquant --to q8_0 packed out.apr 2>&1; echo $?
aprconv convert packed out.gguf 2>&1; echo $?
aprrun packed -p a 2>&1; echo $?
ls out* 2>/dev/null
aprconv show packed --no-metadata | grep packed
aprconv convert packed carried.apr | sed 's/  [0-9.]* s, .*/  (time)/'
aprconv convert carried.apr back >/dev/null && cmp packed/model.safetensors back/model.safetensors && echo identical
