aprrun data/tiny-qwen2 -p a --memory 16 2>&1; echo $?
aprrun data/tiny-qwen2 -p a --headroom 512 2>&1; echo $?
aprconv convert data/tiny-qwen2 out --max-shard 5 2>&1; echo $?
aprplan --vram 8G --headroom 0 --json data/shapes/qwen2.5-0.5b.json | grep -o '"fits":true'
# 0 is nothing that was left out, unless the option says what it is for
for line in 'aprquant --target-size 0 --calibration data/heldout.txt' 'aprquant --to q4_k --calibration-memory 0' 'aprconv convert --max-shard 0K' \
    'aprplan --gpu h200 --vram 0' 'aprplan --gpu h200 --memory 0' 'aprrun --memory 0 -p a'; do
    $line data/tiny-qwen2 2>&1
    echo $?
done
aprrun verify --control 0 data/tiny-qwen2 2>&1; echo $?
aprrun -p a --headroom 0 -n 1 --device auto data/tiny-qwen2 >/dev/null 2>&1; echo $?
