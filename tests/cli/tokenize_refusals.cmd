exec 2>&1
t=data/tiny-qwen2
aprrun tokenize $t </dev/null; echo $?
aprrun tokenize $t --ids --count a; echo $?
aprrun tokenize $t -p a a; echo $?
aprrun tokenize $t a b; echo $?
printf 'a\377' | aprrun tokenize $t; echo $?
aprrun tokenize data/families/llama a; echo $?
aprrun tokenize missing a; echo $?
aprrun tokenize data/sentencepiece --chat a; echo $?
printf 'a\0b' | aprrun tokenize $t --chat; echo $?
printf 'a\0b' | aprrun tokenize $t --count; echo $?
aprrun detokenize $t 5x; echo $?
aprrun detokenize $t 1 99999; echo $?
aprrun detokenize $t 4294967297; echo $?
echo '[1, -2]' | aprrun detokenize $t; echo $?
aprrun detokenize $t </dev/null; echo $?
