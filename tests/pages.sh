#!/bin/bash
# pages.sh BUILD_DIR [-k FOLDER] - opens the pages that the tools write in headless Chromium at 360, 768 and 1,400 pixels, light and dark, and
# checks what a reader needs (tests/pages.py); also a page of 18,867 tensors, as many as a Qwen3 30B-A3B has. -k keeps screenshots.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
keep=
[ "$2" != -k ] || keep=$(mkdir -p "$3" && cd "$3" && pwd) || exit 2
. "$root/tests/counts.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$browser" ] && command -v python3 >/dev/null || { echo "skipped, because chromium or python3 is not here"; count 0 0 1; close_counts 'pages'; exit; }
work=$(mktemp -d) || exit 2
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export PATH=$build:$PATH LC_ALL=C.UTF-8
ln -s "$root/tests/data" "$work/data" && cd "$work" || exit 2

# A checkpoint of tiny tensors: 48 layers of 128 experts.
many_tensors() {
    mkdir many || return
    sed 's/"head_dim": 12/"head_dim": 16/; s/"num_hidden_layers": 4/"num_hidden_layers": 48/; s/"num_local_experts": 6/"num_local_experts": 128/
        s/"moe_intermediate_size": 20/"moe_intermediate_size": 32/' data/families/qwen3_moe/config.json >many/config.json
    awk 'function one(name, rows, columns) {printf ",\n  \"%s.weight\": [[%s%d], %d, 0.2]", name, rows ? rows ", " : "", columns, !rows}
        BEGIN {
            printf "{\"seed\": 1, \"dtype\": \"BF16\", \"tensors\": {\n  \"lm_head.weight\": [[148, 32], 0, 0.2]"
            one("model.embed_tokens", 148, 32); one("model.norm", 0, 32)
            for (layer = 0; layer < 48; layer++) {
                at = "model.layers." layer "."
                one(at "input_layernorm", 0, 32); one(at "post_attention_layernorm", 0, 32); one(at "mlp.gate", 128, 32)
                one(at "self_attn.q_norm", 0, 16); one(at "self_attn.k_norm", 0, 16); one(at "self_attn.q_proj", 64, 32)
                one(at "self_attn.k_proj", 32, 32); one(at "self_attn.v_proj", 32, 32); one(at "self_attn.o_proj", 32, 64)
                for (e = 0; e < 128; e++) {
                    one(at "mlp.experts." e ".gate_proj", 32, 32); one(at "mlp.experts." e ".up_proj", 32, 32); one(at "mlp.experts." e ".down_proj", 32, 32)
                }
            }
            print "}}"
        }' >many/tensors.json
    make_family many experts && aprquant -q --to fp8 experts many-fp8/ --report many.html >/dev/null 2>&1 && rm -r many experts many-fp8
}
make_pages() {
    aprquant -q --to q4_k_m data/tiny-qwen2 q4.gguf --report quantized.html >/dev/null 2>&1 &&
    aprquant -q --to mxfp4 data/tiny-qwen2 mxfp4.apr >/dev/null 2>&1 &&
    aprrun verify -q q4.gguf --ref data/tiny-qwen2 --html verified.html >/dev/null &&
    aprconv convert -q data/tiny-qwen2 same.apr >/dev/null && aprrun verify -q same.apr --ref data/tiny-qwen2 --html identical.html >/dev/null &&
    aprrun bench -q data/tiny-qwen2 --prompt 12,4 --tokens 3 --depth 8,0,4 --repeat 2 --batch 1,2,4 --html measured.html >/dev/null &&
    aprrun bench -q data/tiny-qwen2 --prompt 4 --tokens 2 --repeat 1 --html measured-once.html --hash >/dev/null &&
    aprplan --gpu rtx4090 --table --html planned.html data/shapes/qwen3-8b.json >/dev/null &&
    aprplan --gpus-table --html planned-gpus.html data/shapes/qwen3-8b.json >/dev/null &&
    for type in q8_0 q6_k q5_k_m q4_0; do aprquant -q --to $type data/tiny-qwen2 $type.gguf >/dev/null 2>&1 || return; done
    aprrun compare -q q4.gguf mxfp4.apr q8_0.gguf q6_k.gguf q5_k_m.gguf q4_0.gguf --ref data/tiny-qwen2 --gpu rtx3060 --html compared.html >/dev/null &&
    aprrun compare -q q4.gguf data/tiny-qwen2 --ref data/tiny-qwen2 --bench --html compared-two.html >/dev/null &&
    many_tensors || return
    # another model than the reference
    cp -rL data/tiny-qwen2 other && chmod -R u+w other && sed -i 's/"rope_theta": 1000000.0/"rope_theta": 2000000.0/' other/config.json
    aprrun verify -q other --ref data/tiny-qwen2 --html other.html >/dev/null 2>&1
    [ $? -eq 1 ]
}
make_pages || { echo "FAILED pages cannot be made"; count 0 1 0; close_counts 'pages'; exit 1; }
[ "$(sed -n '/class="tensors"/,/<.table>/p' many.html | grep -c '^<tr><td>')" -eq 18867 ] && count 1 0 0 || { echo "FAILED many.html has not 18,867 tensors"; count 0 1 0; }
set -- *.html
python3 "$root/tests/pages.py" "$browser" ${keep:+-k "$keep"} "$@" >faults && count $# 0 0 || { sed 's/^/FAILED /' faults; count 0 1 0; }
# Each of these changes must be found.
spoil() {
    sed "$2" verified.html >spoiled.html
    if cmp -s verified.html spoiled.html || python3 "$root/tests/pages.py" "$browser" spoiled.html >faults 2>/dev/null || ! grep -q "$3" faults; then
        echo "FAILED not found: $1"
        count 0 1 0
    else count 1 0 0; fi
}
spoil 'texts of a drawing are too small' 's/svg text{font:13px/svg text{font:8px/' 'text of .* px'
spoil 'a word is wider than the screen' 's/<h1>/<p style="white-space:nowrap">a long line that no telephone is wide enough for, and which does not wrap<\/p><h1>/' 'wide on a screen of 360'
spoil 'a text is outside of its drawing' 's/<text x="[0-9.]*" y="14.0">/<text x="900" y="-20">/' 'outside of its drawing'
spoil 'both drawings are shown' 's/svg.narrow{display:none}//' 'not one of the two drawings'
spoil 'no JSON' 's/<script type="application.json" id="answer">{/&,/' 'no JSON'
close_counts 'pages'
