# tensors that are not those of config.json: check, convert, aprquant, aprplan and aprrun all say no, and name the same tensor
try() { # NAME, a change of config.json
    make_family data/families/llama "$1" && sed -i "$2" "$1/config.json" || exit 1
    echo "--- $1"
    aprconv check -q "$1" 2>&1 | sed -n 's/^  tensors  *//p'
    aprconv check -q "$1" >/dev/null 2>said; echo "check $?: $(cut -c1-120 said)"
    aprconv convert -q "$1" out.gguf >/dev/null 2>said; echo "convert $?: $(grep -c 'allow-incomplete' said)"
    aprquant -q --to q8_0 "$1" out.apr >/dev/null 2>said; echo "aprquant $?: $(grep -c 'allow-incomplete' said)"
    aprplan --vram 8G -c 64 "$1" >/dev/null 2>said; echo "aprplan $?: $(cut -c1-120 said)"
    aprrun bench -q --prompt 2 --tokens 1 "$1" >/dev/null 2>said; echo "aprrun $?: $(cut -c1-120 said)"
    ls out.* 2>/dev/null
}
try missing_layer 's/"num_hidden_layers": 4/"num_hidden_layers": 5/'
try layer_too_many 's/"num_hidden_layers": 4/"num_hidden_layers": 3/'
try other_vocabulary 's/"vocab_size": [0-9]*/"vocab_size": 151/'
try no_bias 's/"attention_bias": false/"attention_bias": true/'
aprquant -q --to q8_0 --allow-incomplete missing_layer out.apr 2>&1 >/dev/null | cut -c1-90
ls out.*
# gpt-oss as published, experts in blocks and scales: the rest of its tensors is checked all the same; so are numbers that are not weights
mkdir blocks && cp data/packed/mxfp4-stack/config.json blocks/
for how in 'drop 14' 'integers 2'; do
    make_edited data/packed/mxfp4-stack/model.safetensors $how blocks/model.safetensors || exit 1
    for say in 'aprconv check -q' 'aprplan --vram 8G -c 64' 'aprrun bench -q --prompt 2 --tokens 1'; do
        $say blocks >/dev/null 2>said; echo "$how, ${say%% -*}: $?, $(cut -d: -f2- said)"
    done
done
