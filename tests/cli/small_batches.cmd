# operations are compared on 16 tokens together, or on as many as the session evaluates at a time
for n in 1 4 64; do
    aprrun verify -q --batch $n data/tiny-qwen2 --ref data/tiny-qwen2 >table || exit
    echo "verify --batch $n: $(grep -oE 'operations on host, up to position [0-9]*' table)"
    aprrun parity -q --batch $n --positions 0,100 data/tiny-qwen2 2>/dev/null >lines || exit
    echo "parity --batch $n: $(grep -oE '"position":[0-9]*,"tokens":[0-9]*' lines | sort -u | tr '\n' ' ')"
done
aprrun parity -q --batch 4 --tokens 40 --positions 0 data/tiny-qwen2 2>/dev/null | grep -oE '"tokens":[0-9]*' | sort -u
