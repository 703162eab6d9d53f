cp -rL data/tiny-qwen2 m && chmod -R u+w m
at=$(($(od -An -N8 -tu8 m/model.safetensors) + 8))
dd if=/dev/zero of=m/model.safetensors bs=1000 seek=$(((at + 2000000) / 1000)) count=200 conv=notrunc 2>/dev/null
aprrun verify -q --no-parity m --ref data/tiny-qwen2 >/dev/null
