# published matrices stand for products of code and scale, or for those rounded as the layout's library rounds them: golden takes either
for name in ct-fp8-channel ct-nvfp4 fp8-block-experts; do
    for golden in golden golden-rounded; do
        for device in host ref; do
            aprrun golden --threads 1 --device $device data/packed/$name data/packed/$name/$golden.safetensors >figures || cat figures
            echo "$name, $golden on $device: $(grep -c ' pass ' figures) figures"
            grep values: figures
        done
    done
    aprrun golden --json data/packed/$name data/packed/$name/golden-rounded.safetensors | grep -o '"values":"[a-z_]*"'
    # a GGUF of plain matrices has the library's; of one that keeps the numbers in blocks either set passes
    aprconv convert -q data/packed/$name $name.gguf >/dev/null
    aprrun golden --threads 1 $name.gguf data/packed/$name/golden-rounded.safetensors >figures && echo "$name.gguf: the library's"
done
# another model has neither
aprrun golden data/packed/ct-fp8-tensor data/packed/ct-nvfp4/golden-rounded.safetensors | grep -E 'FAIL.*as one prompt|values' | sed 's/off by [0-9.]*/off by X/'
# what a plain file made of it has in common with it
for name in ct-fp8-channel gptq-4; do aprconv convert -q data/packed/$name $name.gguf -f >/dev/null; aprconv diff data/packed/$name $name.gguf | grep 'in both'; done
