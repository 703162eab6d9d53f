# a text of __metadata__ goes into a GGUF, from a checkpoint and through an APR, and comes back under its name
mkdir noted
cp data/tiny-qwen2/*.json noted
LC_ALL=C sed 's/"format":"pt"/"recipe":"pt"/' data/tiny-qwen2/model.safetensors >noted/model.safetensors
aprconv convert -q noted noted.gguf >convert.txt
aprconv convert -q noted noted.apr >convert.txt
aprconv convert -q noted.apr through.gguf >convert.txt
cmp noted.gguf through.gguf || echo other bytes
aprconv show noted.gguf | grep recipe
aprconv diff noted noted.gguf | grep metadata
aprconv diff data/tiny-qwen2 noted.gguf | grep recipe
aprconv convert -q noted.gguf back >convert.txt
head -c 400 back/model.safetensors | grep -ao '"recipe":"pt"'
