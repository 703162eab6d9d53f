slow='([a-z_.0-9]+)+!|weight'
answer() { "$@" >o 2>e; echo "exit $?, $(wc -c <o) bytes"; sed 's/ in .*//; s/(((((*/.../; s/ at character.*//' e; }
answer aprconv show --filter "$slow" -q data/tiny-qwen2
answer aprconv show --json --filter "$slow" data/tiny-qwen2 | sed 's/[0-9]* bytes/JSON/'
answer aprquant -n -t q8_0 --tensor "$slow=f16" data/tiny-qwen2 out.apr
answer aprconv show --filter "$(printf '%06000d' 0 | tr 0 '(')" data/tiny-qwen2
answer aprconv show --filter '((((a{1,255}){1,255}){1,255}){1,255})' data/tiny-qwen2
