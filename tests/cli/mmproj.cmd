# --mmproj: the vision tower as llama.cpp's second file (its bytes: tests/convert/test_mmproj.c); the text part is the same with and without it
no_time() { sed 's/  [0-9.]* s, .*/  (time)/'; }
make_family data/multimodal/qwen3_vl vl && cp data/mmproj/preprocessor_config.json vl/ || exit 1
aprconv convert -q vl text.gguf
aprconv convert vl out.gguf --mmproj vision.gguf | no_time
cmp text.gguf out.gguf && echo "the text part is the same"
aprquant -q --to q8_0 vl q8.gguf --mmproj q8-vision.gguf >/dev/null && cmp vision.gguf q8-vision.gguf && echo "a tower stays as it is stored"
aprconv convert -q vl vl.apr && aprconv convert --json vl.apr -f out.gguf --mmproj f16.gguf --to f16 | grep -o '"mmproj":{[^}]*}'
aprconv show vision.gguf | sed -n '/^Metadata/,/^$/p'
aprconv diff vision.gguf f16.gguf | tail -n 2
aprconv check vision.gguf | head -n 2
# refused before anything is written
refused() {
    "$@" 2>&1 | tail -n 1
    ls no.gguf none.gguf 2>/dev/null
}
refused aprconv convert vl no.gguf --mmproj vision.gguf
refused aprconv convert vl no.gguf --mmproj no.gguf
refused aprconv convert vl no.gguf --mmproj no.apr
refused aprconv convert vl no.gguf --mmproj none.gguf --resume
refused aprconv convert vl no.apr --mmproj none.gguf
refused aprconv convert data/tiny-qwen2 no.gguf --mmproj none.gguf
refused aprconv convert text.gguf no.gguf --mmproj none.gguf
rm vl/preprocessor_config.json
refused aprconv convert vl no.gguf --mmproj none.gguf
aprconv convert -n vl.apr no.gguf --mmproj none.gguf | grep mmproj
ls ./*.gguf
