exec 2>&1
aprrun bench; echo $?
aprrun bench data/tiny-qwen2 --synthetic data/tiny-qwen2/config.json --dtype q8_0; echo $?
aprrun bench data/tiny-qwen2 --dtype q8_0; echo $?
aprrun bench --synthetic data/tiny-qwen2/config.json; echo $?
aprrun bench --synthetic data/tiny-qwen2/config.json --dtype q9; echo $?
aprrun bench --synthetic missing.json --dtype q8_0; echo $?
aprrun bench data/tiny-qwen2 --prompt 0 --tokens 0; echo $?
aprrun bench data/tiny-qwen2 --prompt 5,; echo $?
aprrun bench data/tiny-qwen2 --depth 1,-1; echo $?
aprrun bench data/tiny-qwen2 --csv --json >csv; echo $?
grep -o "are two formats" csv
aprrun bench data/tiny-qwen2 --prompt 100 --tokens 4 --ctx 64; echo $?
aprrun bench --synthetic data/shapes/llama-3.1-70b.json --dtype q8_0 --memory 4G >m 2>&1; echo $?
grep -oE 'more than the budget|in anonymous memory' m
aprrun bench --synthetic data/shapes/llama-3.1-70b.json --dtype f32 --ctx 100000000 --json >m; echo $?
grep -oE '"status":"[a-z ]*"|but this machine has' m
