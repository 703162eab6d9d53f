# learned positions end: verify stops at the last one, and parity leaves positions out that were not asked for. Here 512, and 40, which
# are fewer than a window of the text
check() {
    aprquant -q --to q8_0 "$1" "$1.apr" >/dev/null 2>&1
    aprrun verify -q "$1.apr" --ref "$1" --json >answer && echo "$1: $(grep -oE '"failed":0|"same_model":true|up to position [0-9]*' answer | tr '\n' ' ')"
}
for family in gpt2 opt; do
    make_family data/families/$family $family && check $family
done
mkdir few && sed 's/"n_positions": 512/"n_positions": 40/' data/families/gpt2/config.json >few/config.json &&
    sed 's/\[512, *32\]/[40, 32]/' data/families/gpt2/tensors.json >few/tensors.json && make_family few few40 && check few40
aprrun parity --synthetic few/config.json --dtype q8_0 2>&1 >lines
aprrun parity --synthetic few/config.json --dtype q8_0 --positions 0,30 2>&1 >lines
# sums whose terms cancel: a gate of one number, and a few heads, are held to their terms
for shape in 'qwen2_moe q8_0 24' 'kimi_linear q8_0 17' 'qwen3_5_moe q4_0 11' 'bailing_hybrid q4_0 23' 'olmoe q8_0 2'; do
    set -- $shape
    aprrun parity --synthetic data/families/$1/config.json --dtype $2 --positions 0,16,40 --seed $3 2>&1 >lines || echo "$shape: exit $?"
done
