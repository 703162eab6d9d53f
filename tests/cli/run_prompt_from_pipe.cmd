# A prompt comes through a pipe, a FIFO or stdin as it comes with -p; the shell's line end at its end is not a part of it.
set -e
run() { aprrun data/tiny-qwen2 -n 8 "$@"; }
run -p 'In the beginning'
echo 'In the beginning' | run
printf 'In the beginning\r\n' | run -p -
printf 'In the beginning' | run --file -
mkfifo pipe
printf 'In the beginning' >pipe &
run --prompt-file pipe
echo 'Recite Ge1:1' | aprrun data/tiny-qwen2 --chat --json | grep -o '"text":"[^"]*"'
printf 'In the beginning God created the heaven and the earth.' | aprrun ppl --window 8 data/tiny-qwen2 - --json | grep -o '"tokens_scored":[0-9]*'
