aprrun data/tiny-qwen2 -n 4 -p "In the beginning" --stats 2>stats >/dev/null
grep -c "NOT AS PLANNED" stats
grep -oE "memory: predicted [0-9.]+ MiB \(without 3.25 MiB mapped from the file\), the heap says" stats | sed "s/[0-9.]* MiB (/N (/"
grep -cE "not in the plan: names and metadata .*, tokenizer |process: .* of files resident" stats
aprrun data/tiny-qwen2 -n 4 -p "In the beginning" --stats --json | grep -oE "\"(as_planned|mapped_bytes)\":[a-z0-9]+"
