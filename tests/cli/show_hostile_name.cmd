{ printf '\140\0\0\0\0\0\0\0'; printf '%-96s' '{"\u001b[31mred\nname":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'; printf '01234567'; } >hostile.safetensors
aprconv show hostile.safetensors
