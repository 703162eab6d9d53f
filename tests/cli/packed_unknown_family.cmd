# an unknown family: its names are kept, its layouts decode to the same numbers, and the way back is byte for byte
for name in gptq-4 awq ct-nvfp4 bnb-nf4-nested fp8-block modelopt-mixed ct-int4-experts; do
    cp -r data/packed/$name $name && chmod -R u+w $name
    sed -i 's/"model_type": "[a-z0-9_]*"/"model_type": "zebra"/; s/For[A-Za-z]*LM"/ForZebras"/' $name/config.json
    aprconv convert $name zebra.apr >/dev/null 2>&1 && aprconv convert zebra.apr back/ >/dev/null 2>&1 || exit 1
    cmp $name/model.safetensors back/model.safetensors && cmp $name/config.json back/config.json || exit 1
    aprquant --to f32 zebra.apr plain/ >/dev/null 2>&1 && aprquant --to f32 data/packed/$name known/ >/dev/null 2>&1 || exit 1
    cmp plain/model.safetensors known/model.safetensors && echo "$name decodes, whatever the family"
    rm -rf $name zebra.apr back plain known
done
aprconv show data/packed/zebra | grep -E 'stripes|architecture'
aprquant --to f32 data/packed/zebra plain/ >/dev/null 2>&1
aprconv show plain | grep stripes
