#!/bin/sh
# llamacpp.sh BUILD_DIR - holds our GGUFs against llama.cpp: the same ids, the same logits, and its quantizations come back.
#
# LLAMA_CPP=DIR is a llama.cpp that was built there (cmake -B build && cmake --build build -t llama llama-quantize); without
# it there is nothing to compare with: the test says so, and does not fail. Needs g++ and python3.
# Per model: a checkpoint is made (tests/llamacpp/models.py), converted to GGUF in bf16, f16 and f32, loaded by llama.cpp.
#   ids      of about 1,300 texts, each with special tokens recognised and as text: ours of the checkpoint, ours of the GGUF, theirs
#   logits   of 64 tokens: the largest difference, as a part of the largest logit; ours of the checkpoint against theirs
#   quants   llama-quantize'd files through APR and back, byte for byte
# The perplexity of a text with each type that aprquant writes is within 2 % (tests/llamacpp/perplexities.py).
# Then the tokens that end generation (tests/llamacpp/stops.py; stops.txt is what it printed last), every family of tests/data/families, and
# quantized value heads (tests/llamacpp/families.py).
# LLAMA_GGUFS=DIR may hold FAMILY.gguf for these, made by convert_hf_to_gguf.py: they are run as well.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-build/release}" && pwd) || exit 2
here=$root/tests/llamacpp
if [ -z "$LLAMA_CPP" ] || [ ! -f "$LLAMA_CPP/include/llama.h" ]; then
    echo "skipped: no llama.cpp. git clone https://github.com/ggml-org/llama.cpp, build its targets llama and llama-quantize in"
    echo "its folder build, and give LLAMA_CPP=THAT_FOLDER"
    exit 0
fi
lib=$(dirname "$(ls "$LLAMA_CPP"/build/bin/libllama.so "$LLAMA_CPP"/build/src/libllama.so 2>/dev/null | head -n 1)")
quantize=$(ls "$LLAMA_CPP"/build/bin/llama-quantize 2>/dev/null)
[ -n "$lib" ] && [ -n "$quantize" ] || { echo "llamacpp: $LLAMA_CPP/build has no libllama.so or no llama-quantize: build them"; exit 2; }
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 2

g++ -O1 -std=c++17 "$here/theirs.cpp" -I "$LLAMA_CPP/include" -I "$LLAMA_CPP/ggml/include" -L "$lib" -lllama -lggml -lggml-base \
    -Wl,-rpath,"$lib" -o theirs || exit 2
gcc -O1 -std=c11 -fopenmp -I "$root" "$here/ours.c" "$build/libaprkit.a" -lcjson -lzstd -ldeflate -lpcre2-8 -lutf8proc -ldl -lm -o ours || exit 2
models=$(python3 "$here/models.py" "$root/tests/data" made) || exit 2
version=$(git -C "$LLAMA_CPP" log -1 --format='%h of %cs' 2>/dev/null || basename "$LLAMA_CPP")
echo "llama.cpp $version"

failed=0
fail() { echo "FAILED $*"; failed=$((failed + 1)); }

# differ A B: the largest difference as a part of the largest logit of B, and whether it is at most BOUND
differ() {
    python3 - "$1" "$2" "$3" <<'P'
import array, sys
a, b = array.array("f"), array.array("f")
a.frombytes(open(sys.argv[1], "rb").read()); b.frombytes(open(sys.argv[2], "rb").read())
if len(a) != len(b) or not a: print("other size"); sys.exit(1)
off = max(abs(x - y) for x, y in zip(a, b)) / max(abs(y) for y in b)
print("%.1e" % off)
sys.exit(not off <= float(sys.argv[3]))
P
}

printf '%-14s %-9s %-16s %-9s %-9s %-9s %s\n' model tokenizer "ids (same/texts)" f32 f16 bf16 "quants that come back"
for m in $models; do
    case $m in qwen*-bytes) texts=made/texts-nfc.bin ;; *) texts=made/texts.bin ;; esac # llama.cpp does not normalise
    ok=1
    "$build/aprconv" convert -q "made/$m" "$m-bf16.gguf" >log 2>&1 || { fail "$m: $(cat log)"; continue; }
    for type in f16 f32; do "$build/aprquant" -q --to $type "made/$m" "$m-$type.gguf" >log 2>&1 || { fail "$m $type: $(cat log)"; ok=0; }; done
    ./theirs ids "$m-bf16.gguf" $texts >theirs.ids || { fail "$m: llama.cpp does not load it"; continue; }
    ./ours ids "made/$m" $texts >ours.ids || { fail "$m: our ids"; continue; }
    ./ours ids "$m-bf16.gguf" $texts >gguf.ids || { fail "$m: our ids of the GGUF"; continue; }
    n=$(wc -l <ours.ids)
    same=$(paste -d'|' ours.ids theirs.ids | awk -F'|' '$1 == $2' | wc -l)
    [ "$same" -eq "$n" ] && [ "$(wc -l <theirs.ids)" -eq "$n" ] || { fail "$m: $same of $n texts have the same ids"; ok=0; }
    cmp -s ours.ids gguf.ids || { fail "$m: the GGUF does not tokenize like the checkpoint"; ok=0; }

    offs=
    for type in f32:2e-5 f16:2e-2 bf16:5e-2; do # llama.cpp rounds activations to the type of half-precision weights
        t=${type%:*}
        ./ours logits "made/$m" made/ids.txt ours.f32 && ./ours logits "$m-$t.gguf" made/ids.txt gguf.f32 || { fail "$m $t: our logits"; continue; }
        ./theirs logits "$m-$t.gguf" made/ids.txt theirs.f32 || { fail "$m $t: llama.cpp does not run it"; continue; }
        off=$(differ ours.f32 theirs.f32 "${type#*:}") || { fail "$m $t: logits off by $off"; ok=0; }
        own=$(differ gguf.f32 ours.f32 1e-6) || { fail "$m $t: our own logits of the GGUF are off by $own"; ok=0; }
        offs="$offs $off"
    done

    back=
    for q in Q8_0 Q4_0 Q4_K_M Q5_K_S Q3_K_L IQ4_NL; do
        "$quantize" "$m-f16.gguf" "q-$q.gguf" $q >log 2>&1 || { fail "$m: llama-quantize $q"; continue; }
        "$build/aprconv" convert -q "q-$q.gguf" q.apr >log 2>&1 && "$build/aprconv" convert -q q.apr q.gguf >>log 2>&1 &&
            cmp "q-$q.gguf" q.gguf >>log 2>&1 && back="$back $q" || fail "$m: $q does not come back: $(cat log)"
        rm -f q.apr q.gguf "q-$q.gguf"
    done
    # shellcheck disable=SC2086
    printf '%-14s %-9s %-16s %-9s %-9s %-9s%s\n' "${m%-*}" "${m#*-}" "$same/$n" $offs "$back"
    [ $ok -eq 1 ] || echo "  (see above)"
done
# Every rule that we know by a name of GGUF's, on one vocabulary: does llama.cpp mean the same by it?
echo
printf '%-18s %s\n' "splitting rule" "ids (same/texts)"
rules=$(sed -n 's/.*{\.name = "\([^"]*\)".*/\1/p' "$root/formats/vocab/vocab.c")
[ -n "$rules" ] || fail "no splitting rule was found in formats/vocab/vocab.c"
for pre in $rules; do
    rm -f pre.gguf
    ./ours pre qwen2-bytes-f16.gguf "$pre" pre.gguf || { fail "$pre: cannot be written"; continue; }
    ./theirs ids pre.gguf made/texts-nfc.bin >theirs.ids && ./ours ids pre.gguf made/texts-nfc.bin >ours.ids || { fail "$pre"; continue; }
    n=$(wc -l <ours.ids)
    same=$(paste -d'|' ours.ids theirs.ids | awk -F'|' '$1 == $2' | wc -l)
    printf '%-18s %s\n' "$pre" "$same/$n"
    [ "$same" -eq "$n" ] || fail "$pre: $same of $n texts have the same ids"
done
echo
[ -x "$build/make_family" ] || make -s -C "$root" "${build#"$root"/}/make_family" || exit 2
python3 "$here/stops.py" "$root/tests/data" "$build" ./theirs made || fail "stops"
echo
python3 "$here/families.py" "$root/tests/data" "$build" ./ours ./theirs "$quantize" "$LLAMA_GGUFS" || fail "families"
echo
python3 "$here/perplexities.py" "$root/tests/data" "$build" ./ours ./theirs || fail "types"
echo "llamacpp: $failed failed"
[ $failed -eq 0 ]
