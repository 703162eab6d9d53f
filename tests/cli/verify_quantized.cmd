for type in fp8 q4_k_m mxfp4; do
    aprquant -q --to $type data/tiny-qwen2 $type.apr >/dev/null 2>&1 && aprrun verify -q --no-parity --json $type.apr --ref data/tiny-qwen2 >v.json
    echo "$type $(grep -o '"same_model":[a-z]*' v.json) $(grep -o '"weights_unchanged":[a-z]*' v.json)"
done
aprrun verify -q --no-parity --json data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf --ref data/tiny-qwen2 >v.json && grep -o '"same_model":[a-z]*' v.json
