# importance of the bundled model's columns on a text, and what aprquant makes of it
aprrun imatrix -q data/tiny-qwen2 data/heldout.txt -o m.gguf --ctx 64 --chunks 4 | head -n 1
aprrun imatrix -q data/tiny-qwen2 data/heldout.txt -o m.dat --ctx 64 --chunks 4 --json | grep -oE '"(entries|windows|window|tokens|experts_without_tokens|matrices_without_name)":[0-9]+' | tr '\n' ' ' && echo
aprrun imatrix --show m.dat | head -n 2
aprquant --to q4_k_m data/tiny-qwen2 plain.gguf >/dev/null
aprquant --to q4_k_m --imatrix m.gguf data/tiny-qwen2 by.gguf | grep importance
aprquant --to q4_k_m --imatrix m.gguf data/tiny-qwen2 by.apr --json | grep -oE '"importance":\{.*"not_covered":\[[^]]*\]\}'
for f in gguf apr; do aprconv show by.$f 2>/dev/null | grep -E 'quantize.imatrix' | tr -s ' '; done
cmp -s plain.gguf by.gguf || echo 'other bytes than without'
