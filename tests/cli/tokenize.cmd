# a text's tokens and back: of a checkpoint, a GGUF's beginning, a folder with a tokenizer and nothing else
text=$(printf 'In the beginning é\n  \001 x')
aprrun tokenize data/tiny-qwen2 "$text"
mkdir alone && cp data/tiny-qwen2/tokenizer.json alone
head -c 200000 data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf >head.gguf
aprrun tokenize data/tiny-qwen2 --ids "$text" >ids && cat ids
for model in alone alone/tokenizer.json data/tiny-qwen2/model.safetensors head.gguf; do aprrun tokenize $model --ids "$text" | cmp - ids && echo "$model says the same"; done
aprrun detokenize alone $(cat ids)
printf '%s\n' "$text" >lines && aprrun tokenize alone --ids <lines | aprrun detokenize alone | cmp - lines && echo there and back
aprrun tokenize alone -f lines --count
aprrun tokenize alone --count -p a
aprrun tokenize alone --json 'a é<|im_end|>'
aprrun tokenize alone --json --ids 'a é'
aprrun tokenize alone --json --count 'a é'
echo '[64, 220,127,102]' | aprrun detokenize alone --json
aprrun detokenize alone --json 127
aprrun tokenize data/tiny-qwen2 --chat --ids hi >chat && aprrun detokenize data/tiny-qwen2 <chat
aprrun tokenize data/tiny-qwen2 --system 'Be kind.' hi --count
# begin and end tokens
aprrun tokenize data/sentencepiece ' a b'
aprrun tokenize data/sentencepiece --ids --no-special ' a b'
for how in '' --no-special; do aprrun tokenize data/sentencepiece --ids $how ' <s> a' | aprrun detokenize data/sentencepiece $how; done
