#!/bin/bash
# planned_is_run.sh [--some] BUILD_DIR [FAMILY|LAYOUT...] - aprplan and aprrun must never disagree about a model: both take it, or both
# refuse it, with one exit code and one sentence. aprconv check has to say no where a run finds damage, and yes where it runs.
#
# Models: each of tests/data/families (by default all), alone and inside a larger model under every prefix, as it should be and with
# faults (tests/support/make_edited.c; other numbers of layers and tokens); each of tests/data/packed, with the same faults, and with a
# config.json that states another layout. Each as a checkpoint, as APR and as GGUF, where it can be written.
# --some: of each a few, chosen in turn.
some=
[ "$1" != --some ] || { some=1; shift; }
here=$(cd "$(dirname "$0")" && pwd)
PATH=$(cd "$1" && pwd):$PATH || exit 2
shift
data=$here/data
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
. "$here/counts.sh"
forms=(folder apr gguf)
styles=(plain model lm_model lm model_lm text_model thinker llm language base)
edits=(drop empty fewer transposed renamed integers)
methods=(gptq awq fp8 fbgemm_fp8 mxfp4 compressed-tensors bitsandbytes modelopt quark hqq exl2 bitnet)
turn=0 n_forms=0 n_refused=0 # turn: which of the families and layouts this is

# judge LABEL MODEL
judge() {
    aprplan --vram 8G -c 64 "$2" >/dev/null 2>planned
    plan=$?
    aprrun golden --threads 1 "$2" "$golden" >/dev/null 2>ran
    run=$?
    [ $run != 1 ] || run=0 # of a model that was changed other figures come out
    aprconv check -q "$2" >/dev/null 2>checked
    check=$?
    sed -i 's/^aprplan: //' planned
    sed -i 's/^aprrun: //; /^warning: /d' ran
    bad=
    [ $plan = $run ] || bad="aprplan says $plan, aprrun $run"
    [ $run = 0 ] || cmp -s planned ran || bad="$bad${bad:+; }two reasons"
    { [ $run = 0 ] && [ $check != 0 ]; } && bad="$bad${bad:+; }aprconv check says $check of what runs"
    { [ $run = 4 ] && [ $check = 0 ]; } && bad="$bad${bad:+; }aprconv check says yes"
    [ $run = 0 ] || n_refused=$((n_refused + 1))
    [ -n "$bad" ] || { count 1 0 0; return; }
    count 0 1 0
    echo "$1: $bad"
    sed 's/^/    aprplan: /' planned
    sed 's/^/    aprrun: /' ran
}

# judge_forms LABEL CHECKPOINT - with --some as one of the three, in turn
judge_forms() {
    n_forms=$((n_forms + 1))
    for form in "${forms[@]}"; do
        [ -z "$some" ] || [ $form = "${forms[$((n_forms % 3))]}" ] || continue
        rm -f model.*
        model=$2
        [ $form = folder ] || { model=model.$form && aprconv convert -q --allow-incomplete "$2" $model >/dev/null 2>&1; } || {
            count 0 0 1
            continue
        }
        judge "$1 as $form" "$model"
    done
}

# judge_changed LABEL CHECKPOINT SED_SCRIPT - with another config.json
judge_changed() {
    rm -rf edited && cp -r "$2" edited && sed -i "$3" edited/config.json || exit 1
    judge_forms "$1" edited
}

# judge_edits LABEL CHECKPOINT - every tensor in every way, or some
judge_edits() {
    n=$(aprconv show --json "$2" | grep -o '"n_tensors": *[0-9]*' | grep -o '[0-9]*$' | head -n 1)
    for how in "${edits[@]}"; do
        [ -z "$some" ] || [ "$how" = "${edits[$((turn % 6))]}" ] || continue
        for ((i = turn % 11; i < n; i += 11)); do
            [ -z "$some" ] || i=$((turn * 11))
            rm -rf edited && cp -r "$2" edited
            make_edited "$2/model.safetensors" "$how" "$i" edited/model.safetensors || break
            judge_forms "$1, $how $i" edited
            [ -z "$some" ] || return
        done
    done
}

judge_family() {
    golden=$data/families/$1/golden.safetensors
    rm -rf plain && make_family "$data/families/$1" plain || exit 1
    layers=$(grep -o '"num_hidden_layers": *[0-9]*' plain/config.json | grep -o '[0-9]*$' | head -n 1)
    for style in "${styles[@]}"; do
        [ -z "$some" ] || [ "$style" = "${styles[$((turn % ${#styles[@]}))]}" ] || continue
        rm -rf wrapped
        [ "$style" = plain ] && cp -r plain wrapped || make_wrapper plain "$style" wrapped || exit 1
        judge_forms "$1, $style" wrapped
        judge_edits "$1, $style" wrapped
        for n in $((layers / 2)) $((layers + 1)); do
            [ -z "$some" ] || [ $n = $((turn % 2 ? layers / 2 : layers + 1)) ] || continue
            judge_changed "$1, $style, $n layers" wrapped "s/\"num_hidden_layers\": *[0-9]*/\"num_hidden_layers\": $n/"
        done
        [ -n "$some" ] || judge_changed "$1, $style, vocabulary" wrapped 's/"vocab_size": *[0-9]*/"vocab_size": 151/'
    done
}

judge_layout() {
    golden=$data/packed/$1/golden.safetensors
    [ -f "$golden" ] || golden=$data/packed/awq/golden.safetensors # of a model that is refused
    rm -rf plain && mkdir plain && cp "$data/packed/$1"/*config.json "$data/packed/$1/model.safetensors" plain/ || exit 1
    judge_forms "$1" plain
    judge_edits "$1" plain
    for style in "${styles[@]}"; do
        [ -z "$some" ] || [ "$style" = "${styles[$((turn % ${#styles[@]}))]}" ] || continue
        rm -rf wrapped
        [ "$style" != plain ] && make_wrapper plain "$style" wrapped || continue
        judge_forms "$1, $style" wrapped
    done
    for method in "${methods[@]}"; do
        [ -z "$some" ] || [ "$method" = "${methods[$((turn % 12))]}" ] || continue
        judge_changed "$1 as $method" plain "s/\"quant_method\": *\"[^\"]*\"/\"quant_method\": \"$method\"/"
    done
    [ -z "$some" ] || return
    judge_changed "$1, other groups" plain 's/"group_size": *[0-9]*/"group_size": 48/; s/"weight_block_size": *\[[^]]*\]/"weight_block_size": [24, 40]/'
    judge_changed "$1, other bits" plain 's/"bits": *[0-9]/"bits": 5/; s/"num_bits": *[0-9]/"num_bits": 6/'
    judge_changed "$1, another order" plain 's/"desc_act": *false/"desc_act": true/; s/"checkpoint_format": *"[a-z0-9_]*"/"checkpoint_format": "marlin"/'
    judge_changed "$1, a slow pattern" plain 's|"ignore": *\[[^]]*\]|"ignore": ["re:.*(.+)+[!?]"]|'
}

[ $# -gt 0 ] || set -- $(cd "$data/families" && ls -d -- */ | tr -d /) $(cd "$data/packed" && ls -d -- */ | tr -d /)
for name; do
    turn=$((turn + 1))
    if [ -d "$data/families/$name" ]; then judge_family "$name"; else judge_layout "$name"; fi
done
echo "refused by both: $n_refused"
[ $n_refused -gt 0 ] || count 0 1 0
close_counts 'planned is run'
