# random weights of a shape, no file: the host against float64, and what does not go together
for s in llama-3.1-8b deepseek-v3 qwen3-30b-a3b; do
  tr '\n' ' ' <data/shapes/$s.json | sed 's/"hidden_size": [0-9]*/"hidden_size": 256/; s/"intermediate_size": [0-9]*/"intermediate_size": 512/; s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/; s/"vocab_size": [0-9]*/"vocab_size": 512/' >$s.json
  aprrun parity --synthetic $s.json --dtype q4_k_m --positions 0,60 --op linear >$s.lines && grep -c '"passed":true' $s.lines
done
aprrun parity --synthetic llama-3.1-8b.json
aprrun parity --synthetic llama-3.1-8b.json --dtype q8_0 model.apr
aprrun parity --synthetic llama-3.1-8b.json --dtype q8_0 --prompt text
