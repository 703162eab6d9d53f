# an APR whose tensors or metadata changed after it was written is not made into another file, by whatever tool
make_family data/families/qwen3_moe model && aprconv convert -q model m.apr >/dev/null
change() { # OFFSET BYTE
    cp m.apr changed.apr && printf "$2" | dd of=changed.apr bs=1 seek="$1" conv=notrunc 2>/dev/null && ! cmp -s m.apr changed.apr
}
converted() {
    for out in o.gguf o.apr o; do
        aprconv convert -q changed.apr $out 2>&1
        echo "exit $?"
    done
    aprquant -q --to q8_0 changed.apr o.gguf 2>&1
    echo "exit $?"
    aprquant -q --to q8_0 --resume changed.apr o.apr 2>&1
    echo "exit $?"
    ls -d o o.apr o.gguf 2>/dev/null
    rm -rf o.*.resume
}
size=$(stat -c %s m.apr)
change $((size - 200)) '\377' && converted
change $(($(grep -abo '"rms_norm_eps":1e-06' m.apr | head -n 1 | cut -d: -f1) + 19)) 5 && converted
# one of the experts that a GGUF stacks
change $((size / 2)) '\376' && aprconv convert -q changed.apr o.gguf 2>&1 | grep -c 'experts.*has changed'
