# files of ranks: the class says how text is split and which special tokens follow the ranks
exec 2>&1
mkdir q k
printf 'YQ== 0\nYg== 1\nYWI= 2\nMQ== 3\nMTE= 4\n' >q/qwen.tiktoken && cp q/qwen.tiktoken k/tiktoken.model
echo '{"tokenizer_class":"QWenTokenizer"}' >q/tokenizer_config.json
aprrun tokenize q --ids 'abab<|im_end|>b<|extra_204|>11'
echo '2 2 7 1 212' | aprrun detokenize q
aprrun tokenize k --ids a; echo $?
echo '{"tokenizer_class":"TikTokenTokenizer"}' >k/tokenizer_config.json
aprrun tokenize k --ids a; echo $?
echo '{"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{"5":{"content":"[EOS]","special":true}}}' >k/tokenizer_config.json
aprrun tokenize k --ids 'ab[EOS]11'
