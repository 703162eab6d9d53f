# a model that asks for a begin token has it in front of every window, as if the text had it there; and says so
mkdir asks
cp data/tiny-qwen2/*.json data/tiny-qwen2/model.safetensors asks
sed '/"single": \[/a {"SpecialToken":{"id":"<|endoftext|>","type_id":0}},' data/tiny-qwen2/tokenizer.json >asks/tokenizer.json
head -c 600 data/heldout.txt >text
printf '<|endoftext|>' | cat - text >marked
for window in 32 64 128; do
    aprrun ppl asks text --kv f32 --window $window | sed -E 's/([0-9]+\.[0-9]{3})[0-9]+/\1/g'
done
aprrun ppl data/tiny-qwen2 marked --kv f32 --window 128 | sed -E 's/([0-9]+\.[0-9]{3})[0-9]+/\1/g'
aprrun ppl asks text --kv f32 --window 128 --json | tr ',' '\n' | grep begin_token
aprrun kld asks text --ref asks --window 128 | grep -E 'window begins|perplexity  ' | sed -E 's/([0-9]+\.[0-9]{3})[0-9]+/\1/'
# of two models that are compared each reads its own begin token; where both ask for one, each has the perplexity that it has alone
mkdir asks_other
cp asks/* asks_other
sed 's/{"SpecialToken":{"id":"<|endoftext|>"/{"SpecialToken":{"id":"<|im_start|>"/' asks/tokenizer.json >asks_other/tokenizer.json
alone() { aprrun ppl "$1" text --kv f32 --window 64 --json | grep -oE '"perplexity":[0-9]+\.[0-9]{3}'; }
both() { aprrun kld "$1" text --ref "$2" --kv f32 --window 64 --json | grep -oE '"(begin_token|begin_token_ref)":[0-9]+|"(perplexity|perplexity_ref)":[0-9]+\.[0-9]{3}' | paste -sd' '; }
alone asks; alone asks_other; alone data/tiny-qwen2
both asks asks_other
both asks_other asks
both asks data/tiny-qwen2
both data/tiny-qwen2 asks
both asks asks
aprrun kld asks text --ref asks_other --window 128 | grep 'window'
aprrun kld asks text --ref data/tiny-qwen2 --window 128 | grep 'window'
aprrun imatrix asks text -o a.gguf --ctx 128 | grep 'window begins'
aprquant --to q4_0 --method ldlq --calibration text --window 64 asks q.apr | grep 'window begins'
# two in front of a prompt are said
aprrun asks -p 'In the' -n 1
aprrun asks -p '<|endoftext|>In the' -n 1
aprrun asks -p '<|endoftext|>In the' -n 1 --no-bos
echo '{"prompt":"<|endoftext|>a","max_tokens":1}' | aprrun batch asks - -o - >answers
