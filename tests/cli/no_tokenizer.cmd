# a model without a tokenizer: every command that takes a text says what is missing and what to do, and writes nothing
exec 2>&1
head -c 3000 data/heldout.txt >text.txt
echo '{"prompt": "text"}' >lines.jsonl
mkdir bare && cp data/tiny-qwen2/config.json data/tiny-qwen2/model.safetensors bare/
aprconv convert -q bare bare.gguf >/dev/null 2>&1 && aprconv convert -q bare bare.apr >/dev/null 2>&1 || exit
t=data/tiny-qwen2 ldlq='-q --to q4_0 --method ldlq --tokens 128 --window 64'
say() { echo "$*"; "$@"; echo "= $?"; }
say aprrun imatrix bare text.txt -o i.gguf
say aprrun imatrix bare.gguf text.txt -o i.gguf
say aprrun imatrix bare.apr text.txt -o i.gguf
say aprrun imatrix bare/model.safetensors text.txt -o i.gguf
say aprrun bare -p text
say aprrun chat bare.gguf
say aprrun ppl bare text.txt
say aprrun kld bare --ref $t text.txt
say aprrun kld $t --ref bare.gguf text.txt
say aprrun compare bare.apr --ref $t text.txt
say aprrun parity -q --positions 0 bare
say aprrun distill $t bare text.txt -o out/ --steps 4
say aprrun tokenize bare.gguf text
say aprquant $ldlq --calibration text.txt bare out.gguf
say aprquant $ldlq --heal --judge text.txt bare.gguf out.gguf
say aprquant $ldlq --heal --heal-text text.txt bare.apr out.gguf
say aprquant -q --target-bpw 5 --calibration text.txt --window 64 bare out.gguf
say aprrun batch bare lines.jsonl -o answers.jsonl
# one that is there, and of which something is not known
cp data/tiny-qwen2/tokenizer_config.json bare/ && sed 's/"type": *"BPE"/"type": "XYZ"/' data/tiny-qwen2/tokenizer.json >bare/tokenizer.json
say aprrun imatrix bare text.txt -o i.gguf
ls
# next to the weights
cp data/tiny-qwen2/tokenizer.json bare/ && aprrun ppl -q bare/model.safetensors text.txt >/dev/null && echo 'it has one now'
