# a scaling that GGUF's divisors cannot be traced back to: the two programs have other slots
cp -rL data/tiny-llama m && chmod -R u+w m
sed -i 's/"original_max_position_embeddings": 8192/"original_max_position_embeddings": 128/' m/config.json
aprquant -q --to q4_0 m q4.gguf >/dev/null 2>&1 || exit
aprrun verify -q --no-parity q4.gguf --ref m | tail -n 1
aprconv convert -q m bf16.gguf >/dev/null 2>&1 || exit
aprrun verify -q --no-parity bf16.gguf --ref m | grep 'each row'
