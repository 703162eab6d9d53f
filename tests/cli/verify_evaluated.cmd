# on a host most of the cache before the distant position is copies of evaluated cells: table, JSON and page say how many tokens were evaluated
said='up to position [0-9]* (before it [0-9]* evaluated tokens and [0-9]* cells copied from them); all products'
aprrun verify -q data/tiny-qwen2 --ref data/tiny-qwen2 | grep -o "$said"
aprrun verify -q data/tiny-qwen2 --ref data/tiny-qwen2 --json --html page.html | grep -oE '"evaluated_tokens":[0-9]*'
grep -o "positions $(echo "$said" | sed 's/up to position/up to/')" page.html
# a shorter context: its last position
aprrun verify -q --ctx 300 data/tiny-qwen2 --ref data/tiny-qwen2 >table && grep -o 'up to position .* products' table
aprrun verify -q --ctx 300 data/tiny-qwen2 --ref data/tiny-qwen2 --json | grep -oE '"evaluated_tokens":[0-9]*'
# without the comparison there is nothing to say
aprrun verify -q --no-parity data/tiny-qwen2 --ref data/tiny-qwen2 --json | grep -c evaluated_tokens || :
