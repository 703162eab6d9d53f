aprrun bench -q data/tiny-qwen2 --prompt 32 --tokens 8 --repeat 2 >b || exit
sed 's/ *[0-9.]* tokens\/s  ([0-9.]* to [0-9.]*, /  N tokens\/s  (N to N, /; s/planned [0-9.]* KiB/planned N/; s/, measured.*//' b
aprrun bench -q data/tiny-qwen2 --prompt 0 --tokens 8 --json >j || exit
grep -oE '"(synthetic|parameters|weights_bytes|backend|context|runs|prompt|finite|weights_are_mapped|as_planned)":[^,}]*|"decoding":\{"tokens":8,"tokens_per_second":' j
