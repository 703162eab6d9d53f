# what runs can be planned: every family's GGUF, and the same with its last tensors still to come
for folder in data/families/*/; do
    family=$(basename "$folder")
    make_family "$folder" "$family" || exit 1
    aprconv convert "$family" "$family.gguf" >/dev/null 2>refused || { grep -q "is not supported" refused && continue || exit 1; }
    size=$(wc -c <"$family.gguf")
    for cut in 1 $((size / 4)) $((size / 2)); do
        head -c $((size - cut)) "$family.gguf" >cut.gguf
        aprplan --gpu rtx4090 --ctx 64 --json "$family.gguf" >whole.json || exit 1
        aprplan --gpu rtx4090 --ctx 64 --json cut.gguf | cmp - whole.json || echo "$family, $cut bytes less: another plan"
    done
    aprrun golden --threads 1 "$family.gguf" "$folder/golden.safetensors" >/dev/null 2>&1 && planned="$planned $family"
    rm -rf "$family" "$family.gguf"
done
echo planned and run:$planned
# it is said, and nothing else reads such a file
aprplan --gpu rtx4090 cut.gguf | grep 'header'
aprrun cut.gguf -p a
