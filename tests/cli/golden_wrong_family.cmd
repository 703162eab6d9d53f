make_family data/families/llama llama && sed 's/10000.0/20000.0/' data/families/llama/config.json >llama/config.json
aprrun golden llama data/families/llama/golden.safetensors >figures
code=$?
grep -c FAIL figures
exit $code
