exec 2>&1
head -c 3000 data/heldout.txt >text.txt
aprquant --to q4_k_m --method ldlq --tokens 100 data/tiny-qwen2 out.gguf; echo $?
aprquant --to q4_k_m --calibration text.txt data/tiny-qwen2 out.gguf; echo $?
aprquant --to q4_k_m --sequential data/tiny-qwen2 out.gguf; echo $?
aprquant --to q4_k_m --method ldlq --calibration text.txt --sequential --resume data/tiny-qwen2 out.gguf; echo $?
aprquant --to q4_k_m --method ldlq --calibration missing.txt data/tiny-qwen2 out.gguf; echo $?
aprquant --to q4_k_m --method ldlq --calibration text.txt --tokens 100 --window 256 data/tiny-qwen2 out.gguf; echo $?
aprquant --to f16 --method ldlq --calibration text.txt --window 128 data/tiny-qwen2 out.gguf; echo $?
printf '\377\376' | cat - text.txt >broken.txt
aprquant --to q4_k_m --method ldlq --calibration broken.txt --window 128 data/tiny-qwen2 out.gguf; echo $?
mkdir bare && cp data/tiny-qwen2/config.json data/tiny-qwen2/model.safetensors bare/
aprquant --to q4_k_m --method ldlq --calibration text.txt --window 128 bare out.gguf; echo $?
ls
