# each has its sentence and its status, and nothing is written
say() {
    "$@" >/dev/null 2>err; status=$?
    head -n 1 err | sed -E 's/[0-9]+\.[0-9]+/N/g; s/(errors of the difference are) .*;/\1 N;/'
    echo "= $status"
}
tokenizer() { cp data/tiny-qwen2/tokenizer.json data/tiny-qwen2/tokenizer_config.json "$1"; }
make_family data/distill student && tokenizer student
head -c 3000 data/heldout.txt >text.txt
head -c 100 data/heldout.txt >short.txt
learn() { aprrun distill data/tiny-qwen2 student "$@" --steps 4 --tokens 32; }
say learn text.txt
say learn short.txt -o out/ --window 64
say learn text.txt -o out/ --memory 1M
say learn text.txt -o out.bin
say learn text.txt -o student -f
say learn text.txt -o out/ --hash
say aprrun distill data/tiny-qwen2 data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf text.txt -o out/
say aprrun distill data/gguf/qwen3.gguf student text.txt -o out/
make_family data/distill bare && say aprrun distill data/tiny-qwen2 bare text.txt -o out/
# a model does not become better than itself; too few steps; a number that is not finite
say aprrun distill data/tiny-qwen2 data/tiny-qwen2 text.txt -o out/ --steps 4 --tokens 32
say learn text.txt -o out/ --loss losses.json
grep -oE '"(losses|held_out_before|standard_error)"' losses.json | tr '\n' ' ' && echo
mkdir changed && sed -E '/layers.1.mlp.down_proj/s/0\.1\]/3e38]/' data/distill/tensors.json >changed/tensors.json && cp data/distill/config.json changed
make_family changed broken && tokenizer broken
say aprrun distill data/tiny-qwen2 broken text.txt -o out/ --steps 4 --tokens 32
ls -d out out.bin 2>/dev/null || echo 'nothing is written'
# no GPU: nothing is opened but the models
CUDA_VISIBLE_DEVICES= learn text.txt -o out/ --device cuda >/dev/null 2>&1; echo "= $?, $(ls -d out 2>/dev/null | wc -l) written"
