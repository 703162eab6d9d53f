# a scaling that the divisors of a GGUF cannot be traced back to: the two programs have other slots
cp -rL data/tiny-llama m && chmod -R u+w m
sed -i 's/"original_max_position_embeddings": 8192/"original_max_position_embeddings": 128/' m/config.json
aprquant -q --to q4_0 m q4.gguf >/dev/null 2>&1 || exit
LC_ALL=C sed 's/aprkit[.]rope/xprkit.rope/' q4.gguf >foreign.gguf # as llama.cpp writes it: divisors alone
aprrun verify -q --no-parity foreign.gguf --ref m >table; code=$?; tail -n 2 table | head -n 1; echo $code
aprconv convert -q m bf16.gguf >/dev/null 2>&1 || exit
aprrun verify -q --no-parity bf16.gguf --ref m | grep 'each row'
