printf '\210\000\000\000\000\000\000\000%s' '{"w.weight":{"dtype":"F32","shape":[2,32],"data_offsets":[0,256]},"n.weight":{"dtype":"F32","shape":[32],"data_offsets":[256,384]}}     ' >wide.safetensors
i=0
while [ $i -lt 32 ]; do printf '\000\000\300\077\000\044\164\111'; i=$((i + 1)); done >>wide.safetensors
head -c 128 /dev/zero >>wide.safetensors
aprquant --tensor '.*=f16' wide.safetensors out.apr
code=$?
ls
exit $code
