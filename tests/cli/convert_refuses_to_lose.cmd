# a splitting rule that GGUF has no name for is named, and written only when asked for
mkdir odd && cp data/tiny-llama/config.json data/tiny-llama/tokenizer.json data/tiny-llama/model.safetensors odd/ && chmod u+w odd/*
sed -i 's/"Regex": *"/"Regex":"[0-9]|/' odd/tokenizer.json
aprconv convert odd odd.gguf
code=$?
ls *.gguf* 2>/dev/null
aprconv convert --allow-loss odd odd.gguf | grep -E '^  (lost|note):'
aprconv convert --allow-loss --json odd again.gguf | grep -cE '"(lost|notes)":'
exit $code
