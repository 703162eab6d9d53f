for type in q4_k_m q6_k q5_0 q8_0 mxfp4 fp8 f16; do
    aprquant --quiet --cpu plain --to $type data/tiny-qwen2 plain.apr >plain.out || exit
    for cpu in auto avx2 avx512; do
        aprquant --quiet -f --cpu $cpu --to $type data/tiny-qwen2 out.apr >out.txt 2>err.txt
        code=$?
        grep -q '^aprquant: this CPU has no ' err.txt && [ $code -eq 5 ] && continue # this machine lacks them
        [ $code -eq 0 ] && cmp plain.apr out.apr || exit 1
    done
    rm plain.apr
done
aprconv gguf2apr --cpu sse9 data/none.gguf out.apr
