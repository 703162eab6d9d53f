# --loss-weighted: tokens count by the loss; said in JSON, in the file and beforehand; the same bytes on any number of threads and after a stop
head -c 9000 data/heldout.txt >text.txt
export OMP_NUM_THREADS=2
weigh() { aprquant --to q3_k --method ldlq --calibration text.txt --window 128 --tokens 1024 --rounds 1 "$@"; }
weigh --json data/tiny-qwen2 plain.gguf | grep -oE '"(loss_[a-z_]*)":[^,]*'
weigh --loss-weighted --json data/tiny-qwen2 out.gguf >said.json && grep -oE '"loss_(weighted|weights_bytes|pass_bytes)":[^,]*' said.json
cmp -s plain.gguf out.gguf || echo 'other codes'
aprconv show --no-tensors out.gguf | grep -o 'quantize.calibration.loss_weighted.*' | tr -s ' '
OMP_NUM_THREADS=1 weigh --loss-weighted data/tiny-qwen2 one.gguf | sed -n 's/^  an experiment/an experiment/p' && cmp out.gguf one.gguf && echo 'one thread, the same bytes'
weigh --loss-weighted --calibration-memory 600K data/tiny-qwen2 small.gguf | grep -oE 'calibration: [0-9]+ passes' && cmp out.gguf small.gguf && echo 'several passes, the same bytes'
# two parts, of which each computes the weights; a run without the option does not go on with them
weigh -q --loss-weighted --part 1/2 data/tiny-qwen2 parts.gguf >/dev/null && weigh -q --part 2/2 data/tiny-qwen2 parts.gguf 2>&1 | grep -oE "rounds, weighted by the loss', but this run has"
weigh -q --loss-weighted --part 2/2 data/tiny-qwen2 parts.gguf >/dev/null && weigh -q --loss-weighted --finish data/tiny-qwen2 parts.gguf >/dev/null && cmp out.gguf parts.gguf && echo 'in parts, the same bytes'
weigh --loss-weighted --sequential --json data/tiny-qwen2 layers.gguf | grep -oE '"(loss_weighted|sequential)":[^,]*'
weigh --loss-weighted --dry-run data/tiny-qwen2 dry.gguf | grep -oE 'weights of tokens .*|on a GPU'
exec 2>&1
weigh --loss-weighted --device cuda data/tiny-qwen2 there.gguf; echo $?
aprquant --to q3_k --loss-weighted data/tiny-qwen2 there.gguf; echo $?
aprquant --to q3_k --method ldlq --loss-weighted --tokens 100 data/tiny-qwen2 there.gguf; echo $?
make_family data/families/deepseek_v32 sparse && aprquant --to q8_0 --method ldlq --loss-weighted --tokens 64 --window 32 sparse there.gguf; echo $?
ls
