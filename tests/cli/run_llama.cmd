# random weights, llama 3's rotary scaling, against transformers: as a checkpoint, as GGUF (rotary pairs, divisors as a tensor), as APR, and back
golden='aprrun golden --checks logits,hidden'
$golden data/tiny-llama data/tiny-llama/golden.json >/dev/null && echo checkpoint
aprconv convert data/tiny-llama a.gguf >/dev/null && $golden a.gguf data/tiny-llama/golden.json >/dev/null && echo gguf
aprconv gguf2apr a.gguf a.apr >/dev/null && $golden a.apr data/tiny-llama/golden.json >/dev/null && echo apr
aprconv apr2gguf a.apr b.gguf >/dev/null && cmp a.gguf b.gguf && echo the same gguf
aprconv apr2st a.apr back >/dev/null && $golden back data/tiny-llama/golden.json >/dev/null && echo checkpoint again
