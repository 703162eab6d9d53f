printf '\210\000\000\000\000\000\000\000%s' '{"w.weight":{"dtype":"F32","shape":[2,32],"data_offsets":[0,256]},"n.weight":{"dtype":"F32","shape":[32],"data_offsets":[256,384]}}     ' >wide.safetensors
i=0
while [ $i -lt 32 ]; do printf '\000\000\300\077\000\044\164\111'; i=$((i + 1)); done >>wide.safetensors
head -c 128 /dev/zero >>wide.safetensors
aprquant --tensor '.*=f16' --saturate wide.safetensors out.apr | grep warning
aprquant --json --tensor '.*=f16' --saturate wide.safetensors again.apr | grep -oE '"(beyond_range|worst_beyond_range|saturated_at)": *[0-9.e+]*'
aprconv check out.apr | grep values
aprquant --tensor '.*=q8_0' wide.safetensors blocks.apr | grep warning
true
