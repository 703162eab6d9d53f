exec 2>&1
echo hi >in
aprrun chat data/sentencepiece <in; echo $?
cp -r data/tiny-qwen2 base && rm base/chat_template.jinja
aprrun chat base <in; echo $?
aprrun chat missing <in; echo $?
aprrun chat data/tiny-qwen2 --load in <in; echo $?
echo '{"prompt":"x"}' >p.json; aprrun chat data/tiny-qwen2 --load p.json <in; echo $?
aprrun chat data/tiny-qwen2 --tools p.json <in; echo $?
aprrun chat data/tiny-qwen2 --stop '' <in; echo $?
printf 'a\0b\n' | aprrun chat data/tiny-qwen2; echo $?
printf 'a\377\nRecite Ge1:1\n' | aprrun chat data/tiny-qwen2 --json -n 3 | cut -d '"' -f 1-9
aprrun -i data/tiny-qwen2 -f in; echo $?
aprrun -i data/tiny-qwen2 --no-bos <in; echo $?
# the same as aprrun chat, where that is asked for
for how in '-i' '-cnv' '--interactive -p hi'; do echo 'Recite Ge1:1' | aprrun data/tiny-qwen2 $how -n 4; done
# tools and what the template makes of them
cp -r data/tiny-qwen2 tools
printf '%s' '{% for t in tools or [] %}tool {{ t.name }} {% endfor %}{{ messages[-1].content }}' >tools/chat_template.jinja
for text in '[{"name":"In"}]' '{"tools":[{"name":"In"},{"name":"the"}]}'; do
    echo "$text" >t.json; echo a | aprrun chat tools --tools t.json --json -n 1 | sed 's/.*\("prompt_tokens":[0-9]*\).*/\1/'
done
