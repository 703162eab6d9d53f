# matrices of which none can be quantized: the answer is no, and no file is written
header='{"a.weight":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]}}'
{ printf '\100\0\0\0\0\0\0\0%s' "$header" && head -c 32 /dev/zero; } >small.safetensors
aprquant --to q8_0 small.safetensors out.apr
code=$?
ls
exit $code
