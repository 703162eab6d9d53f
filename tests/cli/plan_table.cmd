# tables of many plans: each cell is what the single plan says (all cells are compared), and a page
aprplan --gpu rtx4090 --table data/shapes/llama-3.1-70b.json | head -n 6; aprplan --gpus-table data/shapes/llama-3.1-70b.json | grep -E "GPU|context|h200|gb10"
aprplan --gpu rtx4090 --table --dtype q4_k_m --ctx 8192 data/shapes/qwen3-8b.json
cells() { tr '{' '\n' | sed -n 's/^\("gpu":"\([a-z0-9-]*\)",\)*"dtype":\(null\|"\([a-z0-9_]*\)"\),"planned":true,"ctx":\([0-9]*\),"fits":\([a-z]*\),"total_bytes":\([0-9]*\),.*/\2 \4 \5 \6 \7/p'; }
# on a GPU that shares the host's memory both sums count
single() { aprplan --json "$@" | sed 's/.*"fits":\([a-z]*\),"ctx".*"device_bytes":\([0-9]*\),"host_bytes":\([0-9]*\),\(.*"shared_memory":true\)*.*/\1 \2 \3 \4/' | { read -r fits device host shared; [ -z "$shared" ] || device=$((device + host)); echo "$fits $device"; }; }
n=0; aprplan --gpu rtx4090 --table --json data/shapes/qwen3-8b.json | cells >cells; while read -r type ctx fits bytes; do case $type in [0-9]*) bytes=$fits fits=$ctx ctx=$type type=;; esac; [ "$(single --gpu rtx4090 ${type:+--dtype $type} --ctx $ctx data/shapes/qwen3-8b.json)" = "$fits $bytes" ] && n=$((n + 1)) || echo "differs: $type $ctx"; done <cells; echo "$n of $(wc -l <cells) cells are those of single plans"
n=0; aprplan --gpus-table --ctx 8192 --json data/shapes/qwen3-8b.json | cells >cells; while read -r gpu type ctx fits bytes; do [ "$(single --gpu $gpu --dtype $type --ctx $ctx data/shapes/qwen3-8b.json)" = "$fits $bytes" ] && n=$((n + 1)) || echo "differs: $gpu $type"; done <cells; [ $n -gt 200 ] && [ $n = $(wc -l <cells) ] && echo "all GPUs' cells are those of single plans"
aprplan --vram 2G --table data/shapes/llama-3.1-70b.json >/dev/null; echo "nothing fits: $?"
aprplan --gpu rtx4090 --table --html page.html data/shapes/qwen3-8b.json >/dev/null; grep -o '"finding">.*fit.*' page.html | sed 's/[0-9]* of [0-9]*/N of N/'
aprplan --gpu rtx4090 --gpus-table data/shapes/qwen3-8b.json
