aprconv st2apr data/tiny-qwen2 model.apr >/dev/null
aprconv apr2st model.apr checkpoint >/dev/null
for f in checkpoint/*; do cmp $f data/tiny-qwen2/${f#checkpoint/}; done
ls . checkpoint
