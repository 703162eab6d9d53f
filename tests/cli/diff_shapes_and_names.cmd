{ printf '\100\0\0\0\0\0\0\0'; printf '%-64s' '{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'; printf '0123456789abcdef'; } >a.safetensors
{ printf '\240\0\0\0\0\0\0\0'; printf '%-160s' '{"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"x":{"dtype":"U8","shape":[],"data_offsets":[16,17]}}'; printf '0123456789abcdefg'; } >b.safetensors
aprconv diff a.safetensors b.safetensors
