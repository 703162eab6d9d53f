#!/bin/sh
# The whole story on the bundled model: convert, quantize, plan, run, verify; on the GPU as well where one is here. usage: demo.sh BUILD_DIR
set -e
here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$1" && pwd)
data=$here/data
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
PATH=$tools:$PATH

step() { printf '\n# %s\n' "$1" | wrap; }
run() {
    { printf '$' && for word; do case $word in *' '*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac done && echo; } | wrap
    "$@" >output 2>said || { cat output said; exit 1; }
    cat output said | wrap
}
# At most 80 columns: a longer line goes on in the next one, between two cells of a table where there are some.
wrap() {
    sed "s|$data/||g" | awk '{
        most = /^\$/ ? 78 : 80
        while (length($0) > most) {
            for (at = most + 1; at > 40 && substr($0, at - 1, 2) != "  "; at--) ;
            if (at <= 40) for (at = most + 1; at > 8 && substr($0, at, 1) != " "; at--) ;
            if (at <= 8) break
            line = substr($0, 1, at); sub(/ +$/, "", line)
            print line (most < 80 ? " \\" : "")
            rest = substr($0, at); sub(/^ +/, "", rest)
            $0 = "      " rest
        }
        print
    }'
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

if aprrun doctor --quick --device cuda >doctor 2>&1; then
    step 'on the GPU that is here'
    run aprrun doctor
    step 'what the plan predicted, and what the driver says'
    run aprrun tiny-q4_k_m.apr --device cuda --stats --chat -p 'Recite Ge1:1'
    step 'and on the GPU it is still the model: against its original'
    run aprrun verify tiny-q4_k_m.apr --ref "$data/tiny-qwen2" --device cuda
elif "$here/../kernels/cuda/archs.sh" --card | grep -q .; then
    step "a GPU is here, and it is not used: $(cat doctor)"
fi
