# what is answered is not run again; what belongs to something else is refused and stays
for i in 1 2 3 4 5 6 7 8; do echo "{\"id\":$i,\"prompt\":\"Let there be $i\",\"max_tokens\":5}"; done >in.jsonl
batch() { aprrun batch data/tiny-qwen2 "$@" -q 2>&1; echo "exit $?"; }
batch in.jsonl -o whole.jsonl
batch in.jsonl -o whole.jsonl
{ head -n 3 whole.jsonl; sed -n 4p whole.jsonl | head -c 40; } >part.jsonl
batch in.jsonl -o part.jsonl --resume
head -n 3 whole.jsonl | cmp - part.jsonl 2>&1 | sed 's/ after.*//'
sort whole.jsonl >a; sort part.jsonl >b; cmp a b && echo 'as if it had not been ended'
batch in.jsonl -o part.jsonl --resume
cmp -s part.jsonl part.jsonl && sort part.jsonl | cmp a - && echo 'and nothing is done twice'
sed 's/be 2/be two/' in.jsonl >other.jsonl
batch other.jsonl -o part.jsonl --resume
head -n 5 in.jsonl >fewer.jsonl
batch fewer.jsonl -o part.jsonl --resume | sed 's/line [0-9]* is/line N is/'
batch in.jsonl -o part.jsonl --resume --temp 1 | sed 's/line [0-9]* was/line N was/'
echo '{"id":5}' >foreign; printf '{"id":5}' >foreign2; echo text >foreign3
batch in.jsonl -o foreign --resume
batch in.jsonl -o foreign2 --resume
batch in.jsonl -o foreign3 --resume
cat foreign foreign2 foreign3
batch in.jsonl -o in.jsonl --resume
batch in.jsonl -o missing/out.jsonl
batch in.jsonl -o /dev/full
aprrun batch data/tiny-qwen2 in.jsonl -o - -q 2>&1 >/dev/full; echo "exit $?"
# a file that may not grow further is as a disk that is full
for i in $(seq 200); do echo "{\"id\":$i,\"prompt\":\"Let there be $i\",\"max_tokens\":3}"; done >many.jsonl
(ulimit -f 8; batch many.jsonl -o full.jsonl)
tail -c 1 full.jsonl | od -An -c | tr -d ' '
batch many.jsonl -o full.jsonl --resume
grep -c '"text"' full.jsonl
aprrun batch data/tiny-qwen2 many.jsonl -o at_once.jsonl -q
sort at_once.jsonl >a; sort full.jsonl >b; cmp a b && echo 'as with enough room'
