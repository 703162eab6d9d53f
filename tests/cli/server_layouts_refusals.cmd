# what cannot be written is refused with a sentence, before anything is written
make_family data/servers/dense dense
try() {
    aprquant -q "$@" >said 2>&1
    code=$?
    sed 's/; try: .*//' said
    echo "exit $code"
}
try --to int4 --layout modelopt dense out/
try --to q4_k --layout gptq dense out/
try --to int4 --group 48 dense out/
try --to nvfp4 --layout compressed-tensors dense out.gguf
try --to int4 dense out.gguf
try --to int4 --method ldlq dense out/
try --to q8_0 --group 32 dense out.gguf
try --layout gptq dense out/
# a model none of whose matrices a server could take
make_family data/families/qwen3 small
try --to int4 --layout gptq small out/
# blocks that are not the same numbers lose precision twice
aprquant -q --to q4_0 dense q4.gguf >/dev/null
try --to int4 --layout gptq q4.gguf out/
aprquant -q --to int4 --layout gptq --allow-requantize q4.gguf out/ >/dev/null && aprconv show out | grep -c GPTQ
ls out | sort
