# rows of two heads of one q_proj change places: 64 rows of 256 bf16 numbers each
cp -rL data/tiny-qwen2 m && chmod -R u+w m
f=m/model.safetensors
begin=$(($(od -An -N8 -tu8 $f) + 8))
offset=$(head -c $begin $f | grep -ao '"model.layers.1.self_attn.q_proj.weight":{[^}]*' | sed 's/.*data_offsets":\[\([0-9]*\),.*/\1/')
at=$((begin + offset)) n=$((64 * 256 * 2))
dd if=$f of=first bs=1 skip=$at count=$n 2>/dev/null
dd if=$f of=second bs=1 skip=$((at + n)) count=$n 2>/dev/null
cat second first | dd of=$f bs=1 seek=$at conv=notrunc 2>/dev/null
cmp -s $f data/tiny-qwen2/model.safetensors && echo 'nothing was changed'
aprquant -q --to mxfp4 m m.apr >/dev/null 2>&1
aprrun verify -q --no-parity m.apr --ref data/tiny-qwen2 >table
code=$?
grep -o 'FAIL  each row of weights *[0-9]* of [0-9]* tensors too far off' table | tr -s ' '
exit $code
