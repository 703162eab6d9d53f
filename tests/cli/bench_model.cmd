aprrun bench -q data/tiny-qwen2 --prompt 32 --tokens 8 --depth 0,8 --repeat 2 >b || exit
sed -E 's/^(  [pt][pg][0-9]+) +([0-9]+).*/\1 \2 N/; s/^  stage .*/  titles/; s/ceiling: memory.*/ceiling N/; s/planned [0-9.]* [KM]iB/planned N/; s/, measured.*//; /^  no share of the ceiling/d' b
aprrun bench -q data/tiny-qwen2 --prompt 0 --tokens 8 --json >j || exit
grep -oE '"(synthetic|parameters|weights_bytes|weights_bytes_per_token|backend|context|runs|finite|weights_are_mapped|as_planned)":[^,}]*|"stages":\[\{"stage":"tg8","depth":0,"tokens":8,"one_by_one":true,"tokens_per_second":' j
aprrun bench -q data/tiny-qwen2 --prompt 16,4 --tokens 2 --depth 3,0 --repeat 1 --csv >c || exit
head -n 1 c && sed 1d c | cut -d, -f1-8
