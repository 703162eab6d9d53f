# an answer is the same to the last byte alone, among others and in another order
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    case $((i % 3)) in
    0) echo "{\"id\":$i,\"messages\":[{\"role\":\"user\",\"content\":\"Recite Ge1:$i\"}],\"max_tokens\":$((i * 3))}" ;;
    1) echo "{\"id\":$i,\"prompt\":\"And God said, Let there be $(seq -s ' ' $((i * 9)))\",\"max_tokens\":$((30 - i)),\"stop\":[\"the \",\"9\"]}" ;;
    2) echo "{\"id\":$i,\"prompt\":\"In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters. And God said, Let there be light: and there was light. And God saw the light, that it was good $i\",\"temperature\":1,\"top_p\":0.9,\"seed\":$i,\"max_tokens\":9}" ;;
    esac
done >in.jsonl
answers() { sed 's/^{"line":[0-9]*,//; s/,"key":.*$//' "$@" | sort; }
aprrun batch data/tiny-qwen2 in.jsonl -o one.jsonl --sequences 1 -q && answers one.jsonl >one
aprrun batch data/tiny-qwen2 in.jsonl -o - --sequences 12 -q --threads 3 | answers >many
tac in.jsonl | aprrun batch data/tiny-qwen2 - -o back.jsonl --sequences 5 --cells 4096 -q && answers back.jsonl >back
cmp one many && cmp one back && echo 'all are the same'
while read -r line; do
    echo "$line" | aprrun batch data/tiny-qwen2 - -o - -q
done <in.jsonl | answers >alone
cmp one alone && echo 'and alone'
grep '"id":5,' in.jsonl in.jsonl | sed 's/^[^{]*//; 1s/"id":5/"id":50/' | aprrun batch data/tiny-qwen2 - -o shared.jsonl --json | grep -o '"shared_tokens":[1-9][0-9]*'
wc -l <one
