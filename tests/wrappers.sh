#!/bin/bash
# wrappers.sh [--some] BUILD_DIR [FAMILY...] - every family inside a larger model, as hubs have it: under every prefix
# (tests/support/make_wrapper.c), with towers for images and sound that have biases, a projector, and a layer of multi-token prediction.
# The text part is planned and run, from the checkpoint, from APR and from GGUF, with the logits that transformers computes; APR brings
# all of it back, byte for byte; the GGUF has text alone. --some: each family under one prefix, chosen in turn;
# with sanitizers one of the three files of each is then run, in turn.
some=
[ "$1" != --some ] || { some=1; shift; }
here=$(cd "$(dirname "$0")" && pwd)
PATH=$(cd "$1" && pwd):$PATH || exit 2
shift
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
. "$here/counts.sh"
every=1
case $some${PATH%%:*} in 1*asan*) every=3 ;; esac
styles=(lm_model model_lm text_model thinker base model lm llm language)
bad() { echo "$*"; failed=$((failed + 1)); }

# wrap FAMILY STYLE
wrap() {
    local folder=$here/data/families/$1 left
    rm -rf ./* && make_family "$folder" plain && make_wrapper plain "$2" "$1" || exit 1
    aprplan --vram 8G -c 64 "$1" >/dev/null || bad "$1 as $2: not planned"
    aprconv convert "$1" "$1.apr" >/dev/null && aprconv convert "$1.apr" back/ >/dev/null && aprconv convert "$1" "$1.gguf" >out ||
        { bad "$1 as $2: not converted"; return; }
    cmp "$1/model.safetensors" back/model.safetensors || bad "$1.apr as $2 does not go back"
    left=$(sed -n 's/.*left out: \([0-9]*\) tensor.*/\1/p' out)
    local n=$i
    for model in "$1" "$1.apr" "$1.gguf"; do
        n=$((n + 1))
        [ $((n % every)) -eq 0 ] || continue
        aprrun golden --threads 1 --device host "$model" "$folder/golden.safetensors" >figures ||
            bad "$model as $2: $(grep -c FAIL figures) figures differ"
    done
    count 1 0 0
    [ -z "$some" ] || echo "$1 as $2: $(grep -c ' pass ' figures) figures, $left tensors left out"
}

alone=" bailing_hybrid bamba falcon_h1 gpt2 gpt_neox opt " # not published inside of larger models
[ $# -gt 0 ] || set -- $(cd "$here/data/families" && ls -d -- */ | tr -d / | while read -r name; do
    case $alone in *" $name "*) ;; *) echo "$name" ;; esac
done)
i=0
for family; do
    for style in "${styles[@]}"; do
        [ -z "$some" ] || [ "$style" = "${styles[$((i % ${#styles[@]}))]}" ] || continue
        wrap "$family" "$style"
    done
    i=$((i + 1))
done
close_counts 'families inside larger models'
