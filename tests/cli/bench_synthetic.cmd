for type in q4_k_m mxfp4 fp8 bf16; do
    aprrun bench -q --synthetic data/tiny-qwen2/config.json --dtype $type --prompt 16 --tokens 4 --repeat 3 --json >j || exit
    echo $type $(grep -oE '"(parameters|weights_bytes|finite|weights_are_mapped|as_planned)":[^,}]*|"(product_)?seconds":\[[0-9.e-]*,[0-9.e-]*,' j | sed 's/\[.*/ of three/')
    # the weights that aprquant writes: their bytes, each tensor padded to 64
    aprplan --host data/tiny-qwen2 --dtype $type --json | grep -oE '"id":"weights[^}]*' | grep -oE '"bytes":[0-9]+' | cut -d: -f2 | paste -sd+ | sed 's/.*/echo $((&))/' | sh
done
aprrun bench -q --synthetic data/tiny-qwen2/config.json --dtype q8_0 --prompt 16 --tokens 4 --stats 2>stats >b && head -n 2 b
grep -c 'weights in anonymous memory' b
grep -E '^ *(feed-forward|keys and values) ' stats
# a type that is only read
aprrun bench -q --synthetic data/tiny-qwen2/config.json --dtype nvfp4 --prompt 16 --tokens 4 --repeat 3 --json | grep -oE '"(finite|parameters|weights_bytes)":[^,}]*'
