#!/bin/sh
# The whole story on the bundled model: convert, quantize, plan, run, verify. usage: demo.sh BUILD_DIR
set -e
tools=$(cd "$1" && pwd)
data=$(cd "$(dirname "$0")/data" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
PATH=$tools:$PATH

step() { printf '\n# %s\n' "$1"; }
run() {
    printf '$ %s\n' "$*" | sed "s|$data/||g"
    "$@" >output || { cat output; exit 1; }
    sed "s|$data/||g" output
}

step 'a checkpoint as it comes from a hub, converted; every byte finds its way back'
run aprconv st2apr "$data/tiny-qwen2" tiny.apr
run aprconv apr2st tiny.apr back
cmp "$data/tiny-qwen2/model.safetensors" back/model.safetensors && echo 'back/model.safetensors is identical to the original'
run aprconv check tiny.apr

step 'straight from the checkpoint to 4 bits, in one pass'
run aprquant --to q4_k_m "$data/tiny-qwen2" tiny-q4_k_m.apr

step 'does it fit? (asked before the download, answered from a config.json alone)'
run aprplan --gpu rtx5090 --dtype q4_k_m --ctx 8192 "$data/shapes/qwen2.5-32b.json"

step 'it runs'
run aprrun tiny-q4_k_m.apr --chat -p 'Recite Ge1:1'

step 'and it is still the model: against what transformers computed'
run aprrun golden tiny.apr "$data/tiny-qwen2/golden.json"
run aprrun golden --checks tokens,recite --min-recite 36 tiny-q4_k_m.apr "$data/tiny-qwen2/golden.json"
