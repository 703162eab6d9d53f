# what another program put into OUT.resume stays there, and is named
for part in 1/2 2/2; do aprquant -t q8_0 --part $part data/tiny-qwen2 out.apr >/dev/null; done
echo mine >out.apr.resume/notes
aprquant -t q8_0 --finish data/tiny-qwen2 out.apr | grep 'out.apr.resume could not'
echo "exit $?, left: $(ls -A out.apr.resume)"
aprquant -t q8_0 --resume data/tiny-qwen2 second.apr >o && grep -c resume o
cmp out.apr second.apr && ls -d *.resume
