# every vector of a checkpoint is in the plan of its config.json: biases of convolutions, one number a head
for folder in data/families/*/; do
    family=$(basename "$folder")
    make_family "$folder" "$family" || exit 1
    for from in "$family/config.json" "$family"; do
        aprplan --gpu rtx4090 --ctx 512 --json "$from" | grep -oE '"id":"vectors","bytes":[0-9]+'
    done | uniq | wc -l
    rm -r "$family"
done | sort | uniq -c | sed 's/^ *[0-9]* //'
# and not where config.json says that there are none
sed 's/"use_conv_bias": true/"use_conv_bias": false/' data/families/nemotron_h/config.json >config.json
aprplan --gpu rtx4090 --ctx 512 config.json | grep -c '1392 numbers'
