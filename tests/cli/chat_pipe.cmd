# a line is a turn: each answer is what a batch answers to the same messages, and only what is new is read
printf 'Recite Ge1:1\n/save 1.json\n\nWhat was in the beginning?\n/save 2.json\nAnd é?\n/save 3.json\n' >says
printf '%s\n' 's/,{"role":"assistant","content":"\([^"\\]\|\\.\)*"}]}$/]}/' >drop_answer
check() {
    rm -f [123].json
    aprrun chat "$@" --json -n 50 <says 2>notes >chat.jsonl || cat notes
    cat 1.json 2.json 3.json | sed -f drop_answer >asked.jsonl
    aprrun batch "$@" asked.jsonl -o - -q -n 50 | sort >batch.jsonl
    for f in chat batch; do sed 's/.*\("text":".*","finish":"[a-z]*"\),\("prompt_tokens":[0-9]*\).*\("tokens":[0-9]*\),.*/\1 \2 \3/' $f.jsonl >$f; done
    cmp chat batch && sed 's/.*\("prompt_tokens.*read_tokens":[0-9]*\).*/\1/' chat.jsonl
}
check data/tiny-qwen2
check data/tiny-qwen2 --temp 0.9 --top-k 30 --seed 4 --repeat-penalty 1.2 >/dev/null && echo the same where tokens are drawn
check data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf >/dev/null && echo the same of a GGUF
aprrun chat data/tiny-qwen2 -n 50 <says 2>notes; cat notes
printf 'Recite Ge1:1\n' | aprrun chat data/tiny-qwen2 --system 'Be kind.' --json | sed 's/.*\("prompt_tokens":[0-9]*\).*/\1/'
# a template that rewrites what was said: the common beginning stays
mkdir told
cp data/tiny-qwen2/*.json data/tiny-qwen2/model.safetensors told
printf '%s' "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ m.content[:20] if m.role == 'assistant' and not loop.last else m.content }}{{ '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}" >told/chat_template.jinja
check told
