# a text is read once, by one reader: from a pipe it is what it is from a file, for whatever reads it
head -c 6000 data/heldout.txt >text.txt
mkdir piped && mkfifo piped/text.txt
pipe() { timeout 60 sh -c 'cat text.txt >piped/text.txt' & "$@"; }
quant() { aprquant -q --target-bpw 5 --target-tokens 32 --method ldlq --rounds 0 --window 32 --tokens 256 data/tiny-qwen2 "$@"; }
quant --calibration text.txt file.gguf >/dev/null
pipe quant --calibration piped/text.txt pipe.gguf >/dev/null
cmp file.gguf pipe.gguf && echo 'for types by what they do, and for their rounding'
aprrun ppl data/tiny-qwen2 text.txt >file
pipe aprrun ppl data/tiny-qwen2 piped/text.txt >pipe
cmp file pipe && cat pipe | grep -o '^perplexity'
aprrun kld data/tiny-qwen2 --ref data/tiny-qwen2 text.txt --window 64 --json | grep -o '"tokens_scored":[0-9]*' >file
aprrun kld data/tiny-qwen2 --ref data/tiny-qwen2 - --window 64 --json <text.txt | grep -o '"tokens_scored":[0-9]*' >pipe
cmp file pipe && wc -l <pipe
