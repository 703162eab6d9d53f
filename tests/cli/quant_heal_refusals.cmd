exec 2>&1
head -c 2500 data/heldout.txt >text.txt
tail -c 900 data/heldout.txt >short.txt
heal() { aprquant -q --to q4_0 --method ldlq --heal --calibration text.txt --tokens 128 --window 64 --rounds 0 --heal-steps 1 --heal-tokens 64 "$@"; }
aprquant --to q4_0 --heal data/tiny-llama out.gguf; echo $?
aprquant --to q4_0 --method ldlq --judge text.txt data/tiny-llama out.gguf; echo $?
aprquant --to q4_0 --method ldlq --heal-steps 5 data/tiny-llama out.gguf; echo $?
heal --part 1/2 data/tiny-llama out.gguf; echo $?
heal data/tiny-llama out/; echo $?
heal --judge short.txt --window 256 --tokens 256 data/tiny-llama out.gguf; echo $?
heal --judge missing.txt data/tiny-llama out.gguf; echo $?
cp text.txt copy.txt && heal --judge copy.txt data/tiny-llama out.gguf; echo $?; rm copy.txt
ls
# a step that changes nothing: the file of ldlq stays, and the answer is no
aprquant -q --to q4_0 --method ldlq --calibration text.txt --tokens 128 --window 64 --rounds 0 data/tiny-llama ldlq.gguf >/dev/null
heal --heal-rate 1e-6 --judge short.txt --json --report report.json data/tiny-llama out.gguf >said.json; echo $?
grep -oE '"(ok|exit|error|healed|refusal)":("[^"]*"|[^,]*)' said.json
cmp ldlq.gguf out.gguf && echo 'as ldlq made it'
grep -c '"healed":false' report.json
# a step that makes numbers which are not finite ends the training, with the name of the operation
heal --heal-rate 1e34 --heal-steps 9 --judge short.txt data/tiny-llama -f out.gguf | grep -v note; cmp ldlq.gguf out.gguf && echo 'as ldlq made it'
# judged on the model's own text, which another seed gives
heal --heal-rate 1e-6 data/tiny-llama -f out.gguf >/dev/null; echo $?
aprquant --to q4_0 --method ldlq --heal --window 64 --dry-run data/tiny-llama dry.gguf | grep -E 'healing|to heal|mapped|latents|best blocks|to judge' | sed -E 's/ +[0-9.]+ [KMG]?i?B$/ x/; s/: [0-9.]+ MiB/: x/'
# no GPU: nothing is made
CUDA_VISIBLE_DEVICES= aprquant -q --to q4_0 --method ldlq --tokens 256 --window 64 --heal --device cuda data/tiny-llama there.gguf >/dev/null 2>&1; echo "= $?, $(ls there.gguf 2>/dev/null | wc -l) written"
