# chat templates with names go into a GGUF, an APR and back, from a folder of files and from a list
cp_model() { mkdir "$1" && cp data/tiny-qwen2/*.json data/tiny-qwen2/chat_template.jinja data/tiny-qwen2/model.safetensors "$1"; }
cp_model files && mkdir files/additional_chat_templates
printf 'T{{ messages[0].content }}' >files/additional_chat_templates/tool_use.jinja
printf 'R' >files/additional_chat_templates/rag-2.jinja
printf 'no template' >files/additional_chat_templates/notes.txt
cp_model list && rm list/chat_template.jinja
sed 's/^{/{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}],/' data/tiny-qwen2/tokenizer_config.json >list/tokenizer_config.json
for from in files list; do
    aprconv convert $from $from.gguf -q | grep -E 'not copied'
    aprconv convert $from $from.apr -q >/dev/null
    aprconv show $from.gguf | grep chat_template
    aprconv convert $from.apr through.gguf -f -q >/dev/null
    cmp $from.gguf through.gguf || echo other bytes
    aprconv convert $from.gguf $from-back -q >/dev/null
    head -c 100 $from-back/additional_chat_templates/*
    echo
done
aprconv convert files.apr again -q >/dev/null
diff -r files/additional_chat_templates again/additional_chat_templates
# a folder with them is replaced as a whole; one with something else in it is not
aprconv convert list.gguf again -f -q >/dev/null
ls again again/additional_chat_templates
echo mine >again/additional_chat_templates/mine.txt
aprconv convert list.gguf again -f -q
aprconv convert data/tiny-qwen2 list-back -f -q >/dev/null
ls list-back
