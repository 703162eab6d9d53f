# how a token is chosen: zeros leave the steps out, one token in the choice is the likeliest one, threads and batches change nothing
run() { aprrun data/tiny-qwen2 -p 'And the' -n 24 "$@"; }
run --temp 1 --seed 7 >plain
run --temp 1 --seed 7 --top-k 0 --min-p 0 --repeat-penalty 1 --presence-penalty 0 --frequency-penalty 0 --repeat-last 5 | cmp - plain && echo zeros change nothing
run >greedy
for one in '--top-k 1' '--min-p 1' '--top-p 1e-9'; do run --temp 2 --seed 3 $one | cmp - greedy && echo "$one is greedy"; done
chain='--temp 1.2 --top-k 30 --top-p 0.95 --min-p 0.02 --repeat-penalty 1.3 --presence-penalty 0.5 --frequency-penalty 0.2 --repeat-last 16 --seed 5'
run $chain --json >one.json
for threads in 1 2 3; do run $chain --threads $threads; done | sort | uniq -c | sed 's/ *\([0-9]*\).*/\1 times the same/'
echo '{"prompt":"And the","max_tokens":24,"temperature":1.2,"top_k":30,"top_p":0.95,"min_p":0.02,"repeat_penalty":1.3,"presence_penalty":0.5,"frequency_penalty":0.2,"repeat_last":16,"seed":5}' >line.jsonl
text() { tr -d '\n' <"$1" | sed 's/.*"text":"\([^"]*\)".*/\1/'; }
aprrun batch data/tiny-qwen2 line.jsonl -o - -q >batch.json
echo '{"prompt":"And the"}' | aprrun batch data/tiny-qwen2 - -n 24 $chain -o - -q >options.json
[ "$(text one.json)" = "$(text batch.json)" ] && [ "$(text one.json)" = "$(text options.json)" ] && echo batches choose alike
sed 's/^{/{"custom_id":"a","body":{/; s/$/}/; s/repeat_penalty/repetition_penalty/; s/repeat_last/repeat_last_n/' line.jsonl >openai.jsonl
aprrun batch data/tiny-qwen2 openai.jsonl -o - -q >answer.json
[ "$(text one.json)" = "$(text answer.json)" ] && echo and in the shape of OpenAI
run --repeat-penalty 1.5 | cmp -s - greedy || echo a penalty changes the answer
