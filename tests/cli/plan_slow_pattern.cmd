# a skip list that is given up on says nothing of what is quantized: no plan, neither of the config.json alone nor of the checkpoint
mkdir slow && cp data/packed/ct-int4-g32/model.safetensors slow/
sed 's|"ignore": *\[[^]]*\]|"ignore": ["re:.*(.+)+[!?]"]|' data/packed/ct-int4-g32/config.json >slow/config.json
for model in slow slow/config.json; do
    aprplan --vram 8G -c 64 $model 2>&1 | sed 's/ in .*//'
    aprplan --vram 8G -c 64 --dtype q8_0 $model >/dev/null 2>&1; echo "$model --dtype q8_0: $?"
done
aprrun golden slow data/packed/ct-int4-g32/golden.safetensors 2>&1 | sed 's/ in .*//'
