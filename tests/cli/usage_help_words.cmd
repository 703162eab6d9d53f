# what other programs' options become, in words that need no table to be read
for tool in aprconv aprquant aprplan aprrun; do
    $tool help words >words || exit
    echo "$tool: $(grep -c '^      ' words) rows, $(grep -c '[{%]' words) with marks of the table"
done
aprrun help words | grep -A1 -- '--hf-model'
