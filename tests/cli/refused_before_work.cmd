# what can be known beforehand is said before a text is read: this one is too short, which is found when it is read
say() { "$@" 2>&1 >/dev/null | head -n 1; "$@" >/dev/null 2>&1; echo "= $?"; }
quant() { aprquant -q --target-bpw 5 --calibration short.txt "$@"; }
printf 'short' >short.txt
say quant data/tiny-qwen2 out.gguf
echo '--- what exists, or is named twice'
mkdir sub kept.gguf.resume && ln -s sub link
echo mine >there.gguf && : >one.json && ln one.json two.json && cp short.txt text.gguf
say quant data/tiny-qwen2 there.gguf
say quant --resume data/tiny-qwen2 there.gguf
say quant --state out.gguf data/tiny-qwen2 out.gguf
say quant --state sub/../out.gguf -f data/tiny-qwen2 ./out.gguf
say quant --state sub/x.json --report link/x.json data/tiny-qwen2 out.gguf
say quant --dry-run --state out.gguf data/tiny-qwen2 out.gguf
say quant --state one.json --report two.json data/tiny-qwen2 out.gguf
say quant --resume --report out.gguf.resume data/tiny-qwen2 out.gguf
say quant --state no/x.json data/tiny-qwen2 out.gguf
say aprquant -q -f --target-bpw 5 --calibration text.gguf data/tiny-qwen2 text.gguf
say aprrun imatrix data/tiny-qwen2 short.txt -o there.gguf
say aprrun imatrix data/tiny-qwen2 short.txt -o kept.gguf --resume
echo '--- what has no room for the smallest types'
say aprquant -q --target-bpw 1.5 --calibration short.txt data/tiny-qwen2 out.gguf
say aprquant -q --target-size 100K --calibration short.txt data/tiny-qwen2 out.gguf
echo '---'
ls && cat there.gguf
