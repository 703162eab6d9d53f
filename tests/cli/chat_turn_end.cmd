# the template ends turns with <|im_end|>, which this checkpoint does not state as a stop: a chat ends there, other runs do not
mkdir base
cp data/tiny-qwen2/*.json data/tiny-qwen2/chat_template.jinja data/tiny-qwen2/model.safetensors base
for f in config.json generation_config.json; do sed 's/"eos_token_id": [0-9]*/"eos_token_id": 2045/' data/tiny-qwen2/$f >base/$f; done
sed 's/"eos_token": "<|im_end|>"/"eos_token": "<|endoftext|>"/' data/tiny-qwen2/tokenizer_config.json >base/tokenizer_config.json
aprrun base --chat -p 'Recite Ge1:1' -n 24 --json | tr ',' '\n' | grep -E '"(text|finish)"'
printf '<|im_start|>user\nRecite Ge1:1<|im_end|>\n<|im_start|>assistant\n' >rendered
aprrun base -f rendered -n 24 --json | tr ',' '\n' | grep '"finish"'
for line in '"messages":[{"role":"user","content":"Recite Ge1:1"}]' '"prompt":"In the"'; do
    echo "{$line,\"max_tokens\":24}"
done | aprrun batch base - -o - -q | sort | sed 's/.*"finish":"\([a-z]*\)".*/\1/'
aprconv show base | grep 'chat stops'
aprconv check base | grep '  chat'
aprconv check base --json | tr ',' '\n' | grep turn_end
aprrun verify base --ref base | grep 'stop id'
# a GGUF's other readers find <|im_end|> by its text, and another text not at all: that is said, unless the model states it
aprconv convert -q base base.gguf | grep -c 'ends turns with' || true
cp -r base own
for f in tokenizer.json chat_template.jinja tokenizer_config.json; do sed 's/<|im_end|>/<|over|>/g' base/$f >own/$f; done
aprconv convert -q own own.gguf | grep 'ends turns with'
aprconv convert -q own own.apr | grep -c 'ends turns with' || true
sed 's/2045/[2045, 2046]/' base/generation_config.json >own/generation_config.json
aprconv convert -q own stated.gguf | grep -c 'ends turns with' || true
aprconv show stated.gguf | grep eot_token_id
# one that states it has nothing to say
aprconv show data/tiny-qwen2 | grep -c 'chat stops'
aprconv check data/tiny-qwen2 | grep -c '  chat' || true
