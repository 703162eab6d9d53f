# the last norm's gains are NaN: figures are shown as such, and the answer is no
cp -rL data/tiny-qwen2 m && chmod -R u+w m
f=m/model.safetensors
begin=$(($(od -An -N8 -tu8 $f) + 8))
offset=$(head -c $begin $f | grep -ao '"model.norm.weight":{[^}]*' | sed 's/.*data_offsets":\[\([0-9]*\),.*/\1/')
head -c 512 /dev/zero | tr '\000' '\377' | dd of=$f bs=1 seek=$((begin + offset)) conv=notrunc 2>/dev/null
aprrun kld -q m --ref data/tiny-qwen2 data/heldout.txt --window 32 --max-windows 2 --json >k
code=$?
grep -oE '"(status|kl_mean|perplexity|perplexity_ratio|same_top)":[^,]*|"largest":\{[^}]*"token":[0-9]+' k
grep -oE '"error":"[^"]*"' k
exit $code
