# a small file that cannot be read is not a missing file: a link that leads nowhere, a circle of links
aprconv convert -q data/tiny-qwen2 sound.gguf >/dev/null
for name in tokenizer.json config.json generation_config.json chat_template.jinja; do
    for target in nowhere $name; do
        rm -rf model && mkdir model && cp data/tiny-qwen2/*.json data/tiny-qwen2/*.jinja data/tiny-qwen2/model.safetensors model
        rm model/$name && ln -s $target model/$name
        aprconv convert -q model out.gguf 2>&1
        echo "exit $?"
    done
done
ls
