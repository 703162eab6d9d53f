# lines of OpenAI's batches are answered in their own shape; a run goes on where another was ended
q='"messages":[{"role":"user","content":"Recite Ge1:1"}],"max_tokens":20'
cat >in.jsonl <<END
{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m",$q,"n":1,"stream":false,"presence_penalty":0}}
{"custom_id":"b","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"In the beginning","max_tokens":4}}
{"custom_id":"c","method":"POST","url":"/v1/embeddings","body":{"model":"m","input":"x"}}
{"custom_id":"d","body":{$q,"logit_bias":{"5":-100}}}
{"id":"own","prompt":"In the beginning","max_tokens":4}
END
shown() { sed 's/aprkit-\([0-9]*\)-[0-9a-f]*-[0-9a-f]*/aprkit-\1/g; s/"created":[0-9]*/"created":0/; s/,"key":.*/}/' "$1" | sort; }
aprrun batch data/tiny-qwen2 in.jsonl -o out.jsonl --ctx 128 -q 2>&1
shown out.jsonl
head -n 2 out.jsonl >half.jsonl
printf '{"id":"aprkit-3' >>half.jsonl
aprrun batch data/tiny-qwen2 in.jsonl -o half.jsonl --ctx 128 -q --resume 2>&1
shown half.jsonl >half && shown out.jsonl | cmp - half && echo resumed
# what the template is told
mkdir told
cp data/tiny-qwen2/*.json data/tiny-qwen2/model.safetensors told
printf '%s' '{% if enable_thinking %}think {% endif %}{% for t in tools or [] %}tool {{ t.name }} {% endfor %}{{ messages[0].content }}' >told/chat_template.jinja
for more in '' ',"tools":[{"name":"In"}]' ',"chat_template_kwargs":{"enable_thinking":true,"messages":[]}'; do
    echo "{\"custom_id\":1,\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"the\"}],\"max_tokens\":1$more}}"
done | while read -r line; do echo "$line" | aprrun batch told - -o - -q | sed 's/.*"prompt_tokens":\([0-9]*\).*/\1 tokens/'; done
# calls of tools: their arguments as an object, and a content of null for templates that know calls by it as for those that take strings only
cp -r told calls
call='{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"In","arguments":"{\\"the\\": 1}"}}]}'
for template in '{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}{{ c.function.arguments.the }}{% endfor %}{% else %}the the{% endif %}{% endfor %}' \
    '{% for m in messages %}{{ "the" + m.content }}{% endfor %}'; do
    printf '%s' "$template" >calls/chat_template.jinja
    echo "{\"custom_id\":1,\"body\":{\"messages\":[$call],\"max_tokens\":1}}" | aprrun batch calls - -o - -q | sed 's/.*"prompt_tokens":\([0-9]*\).*/\1 tokens/'
done
# the model's own sampling, where a line says nothing
printf '{"do_sample":true,"temperature":0.7,"top_p":0.8,"eos_token_id":2046}' >told/generation_config.json
aprrun batch told in.jsonl -o sampled.jsonl 2>&1 | grep note
aprrun batch told in.jsonl -o greedy.jsonl --greedy 2>&1 | grep -c note
aprrun batch data/tiny-qwen2 in.jsonl -o forced.jsonl --format openai -q 2>/dev/null; grep -c '"error":null' forced.jsonl
