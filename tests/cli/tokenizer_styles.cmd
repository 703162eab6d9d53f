# WordPiece, Unigram, ByteLevel with a space in front: run from a checkpoint and from its APR, which goes back to the same files; for GGUF
# it is said why it would have no tokenizer
for style in bert wordpiece t5 albert fallback prefix lower; do
    mkdir $style && cp data/tiny-qwen2/config.json data/tiny-qwen2/model.safetensors $style
    cp data/tokenizer/styles/$style.json $style/tokenizer.json
    aprconv convert -q $style $style.apr >/dev/null && aprconv convert -q $style.apr back/ >/dev/null || exit 1
    cmp $style/tokenizer.json back/tokenizer.json
    echo "$style: $(aprconv show $style.apr | sed -n '/^Tokenizer/,/tokens/p' | sed 1d | tr -s ' \n' ' ')"
    for model in $style $style.apr back; do
        echo '{"id":1,"prompt":"In the beginning God cre\u0301ated \uff21 thing","max_tokens":1}' | aprrun batch $model - -o - -q --ctx 64 |
            sed 's/.*"prompt_tokens":\([0-9]*\).*/  \1 tokens/'
    done
    aprconv diff $style $style.apr | tail -n 1
    aprconv convert -q $style out.gguf 2>&1 | sed 's/;.*//'
    rm -rf back
done
aprconv convert -q --allow-loss bert out.gguf | grep -c 'no tokenizer'
aprconv show out.gguf | grep -A 1 '^Tokenizer' | sed 1d
# without the added tokens that GGUF has no place for: its kinds bert and t5, and the same ids from there and from the APR of it
for style in bert t5; do
    sed -E ':a; s/,\{"id":[0-9]+,"content":"(NewWord|raw word|<mask>|[^"]*que)"[^}]*\}//; ta' -i $style/tokenizer.json
    aprconv convert -q $style $style-2.gguf 2>&1 && aprconv convert -q $style-2.gguf $style-2.apr && aprconv convert -q $style-2.apr back.gguf
    cmp $style-2.gguf back.gguf && rm back.gguf
    aprconv show $style-2.gguf | grep -E 'ggml.(model|tokens|token_type|normalizer|remove|add_|precomp|cls|sep|mask)|aprkit|kind'
    for model in $style $style-2.gguf $style-2.apr; do aprrun tokenize $model --ids ' In the  beginning God made A<mask>Thing [MASK].'; done
    aprconv convert -q $style-2.gguf back/ 2>&1 || echo $?
done
