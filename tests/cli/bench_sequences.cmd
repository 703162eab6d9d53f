aprrun bench -q data/tiny-qwen2 --prompt 70 --tokens 5 --repeat 2 --sequences 1,3,18 >b || exit
sed -nE '/sequences/,/at once/p' b | sed -E 's/^( +[0-9]+) +[0-9].*/\1 N/; s/^ +sequences .*/titles/; s/^ +/ /'
aprrun bench -q data/tiny-qwen2 --prompt 8 --tokens 3 --repeat 1 --sequences 2 --csv | sed 1,3d | cut -d, -f1-4
aprrun bench -q data/tiny-qwen2 --prompt 8 --tokens 3 --repeat 1 --sequences 2,4 --json | grep -oE '"sequences":[0-9]+,"prompt":8,"tokens":3,"tokens_per_second":[1-9]' | cut -d: -f1-4
aprrun bench -q data/tiny-qwen2 --prompt 8 --tokens 3 --repeat 1 --sequences 0 2>&1; echo $?
aprrun bench -q data/tiny-qwen2 --prompt 0 --tokens 3 --repeat 1 --sequences 2 2>&1; echo $?
