exec 2>&1
echo '{"prompt":"a"}' >in.jsonl
aprrun batch data/tiny-qwen2 in.jsonl; echo $?
aprrun batch data/tiny-qwen2 in.jsonl -o - --json; echo $?
aprrun batch data/tiny-qwen2 in.jsonl -o - --resume; echo $?
aprrun batch data/tiny-qwen2 in.jsonl -o out --batch 5; echo $?
aprrun batch data/tiny-qwen2 missing.jsonl -o out; echo $?
aprrun batch data/tiny-qwen2 data -o out; echo $?
aprrun batch data/tiny-qwen2 in.jsonl -o data; echo $?
aprrun batch missing in.jsonl -o out; echo $?
aprrun batch data/tiny-qwen2 in.jsonl -o out --memory 1M 2>&1 | sed 's/needs .*/needs .../'; ls out
: >empty.jsonl; aprrun batch data/tiny-qwen2 empty.jsonl -o none.jsonl | sed 's/ in [0-9.]* s, [0-9.]*/ in .../'; wc -c <none.jsonl
