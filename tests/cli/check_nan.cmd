{ printf '\100\0\0\0\0\0\0\0'; printf '%-64s' '{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'; printf '\0\0\0\0\0\0\200\077\0\0\300\177\0\0\200\377'; } >w.safetensors
aprconv check w.safetensors
