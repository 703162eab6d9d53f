aprrun bench -q data/tiny-qwen2 --prompt 70 --tokens 5 --repeat 2 --sequences 1,3,18 >b || exit
sed -nE '/sequences/,/at once/p' b | sed -E 's/^( +[0-9]+) +[0-9].*/\1 N/; s/^ +sequences .*/titles/; s/^ +/ /'
aprrun bench -q data/tiny-qwen2 --prompt 8 --tokens 3 --repeat 1 --sequences 2 --csv | sed 1,3d | cut -d, -f1-4
aprrun bench -q data/tiny-qwen2 --prompt 8 --tokens 3 --repeat 1 --sequences 2,4 --json | grep -oE '"sequences":[0-9]+,"prompt":8,"tokens":3,"tokens_per_second":[1-9]' | cut -d: -f1-4
aprrun bench -q data/tiny-qwen2 --prompt 8 --tokens 3 --repeat 1 --sequences 0 2>&1; echo $?
aprrun bench -q data/tiny-qwen2 --prompt 0 --tokens 3 --repeat 1 --sequences 2 2>&1; echo $?
# the same as a list of --batch, whose single number is a prompt's pieces
aprrun bench -q data/tiny-qwen2 --prompt 70 --tokens 3 --repeat 1 --batch 16 --sequences 2 --json | grep -oE '"batch":[0-9]+|"sequences":[0-9]+,"prompt":70'
aprrun bench -q data/tiny-qwen2 --prompt 70 --tokens 3 --repeat 1 --batch 1,3 --json | grep -oE '"batch":[0-9]+|"sequences":[0-9]+,"prompt":70'
aprrun bench -q data/tiny-qwen2 --prompt 70 --tokens 3 --repeat 1 -b 2,3 --json | grep -oE '"(with_prompts|tokens)_per_second":[0-9.]+|"(mean|p95|longest)_first_token_seconds":[0-9.e-]+' |
    tail -n 5 | awk -F: '{v[NR] = $2} END {r = v[2] / v[1] * 3 / 73; print (r > 0.999 && r < 1.001 ? "with prompts" : "with prompts " r), (v[3] <= v[4] && v[4] <= v[5] ? "in order" : "not in order")}'
# while all decode and none joins: with a token each that never is
for tokens in 9 1; do
    aprrun bench -q data/tiny-qwen2 --prompt 8 --tokens $tokens --repeat 1 --sequences 2 --json | grep -oE '"decoding_alone_per_second":([1-9]|0.0,)' | sed 's/:[1-9]/:N/'
done
for list in 1, 0,1 x 1000001 -5; do aprrun bench -q data/tiny-qwen2 --batch=$list 2>&1; echo $?; done
aprrun bench -q data/tiny-qwen2 --batch 1,2 --sequences 3 2>&1; echo $?
# mixtures of experts and recurrent layers, too
for family in qwen3_moe qwen3_5_moe nemotron_h; do
    aprrun bench -q --synthetic data/families/$family/config.json --dtype q8_0 --prompt 9 --tokens 3 --repeat 1 --sequences 4 --json >j || exit
    echo $family $(grep -oE '"sequences":4,"prompt":9,"tokens":3,"tokens_per_second":[1-9]|"finite":true|"as_planned":true' j | sed 's/:[1-9]$//')
done
