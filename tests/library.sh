#!/bin/bash
# library.sh BUILD_DIR - the library as other programs get it: installed into an empty folder, of which only aprkit_* can be seen; its header
# in C11 and C++17; the examples built with pkg-config and run; a conversion stopped by Ctrl-C leaves nothing; threads, verifications that are
# cancelled and files that are cut short (tests/library/contexts.c); the binary interface is the recorded one (tests/abi.sh).
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
. "$root/tests/counts.sh"
fail() { echo "FAILED library: $*"; count 0 1 0; }
# check WHAT COMMAND...: it succeeds
check() { local what=$1; shift; if "$@" >"$work/out" 2>&1; then count 1 0 0; else fail "$what"; head -n 20 "$work/out"; fi; }

flavor=${build##*/} shared=0
case $flavor in *-shared) flavor=${flavor%-shared} shared=1 ;; esac
make -s --no-print-directory -C "$root" CUDA=0 FLAVOR="$flavor" SHARED=$shared DESTDIR="$work/tree" PREFIX=/usr install-library >"$work/out" 2>&1 || { cat "$work/out"; fail install; }
lib=$work/tree/usr/lib header=$work/tree/usr/include/aprkit.h
export PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/tree LD_LIBRARY_PATH=$lib LC_ALL=C.UTF-8

# the names of a shared library without their versions; what tools take that are linked with it (make SHARED=1) is of a version of its own
exported() { nm -D --defined-only "$1" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}'; }
only_public() { [ -n "$1" ] && ! grep -v '^aprkit_' <<<"$1"; }
check "the shared library shows other names than aprkit_*" only_public "$(exported "$lib/libaprkit.so")"
check "the static library has other global names than aprkit_*" only_public "$(nm -g --defined-only "$lib/libaprkit.a" | awk 'NF == 3 {print $3}')"
declared() { sed -n 's/.*\<\(aprkit_[a-z_]*\)(.*/\1/p' <(grep APRKIT_API "$header") | sort; }
check "the library has not all that the header declares" diff <(declared) <(exported "$lib/libaprkit.so" | grep -v '^aprkit_private_' | sort)
soname() { [ "$(readelf -d "$lib/libaprkit.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" = libaprkit.so.0 ] && [ -e "$lib/libaprkit.so.0" ]; }
check "the soname" soname
# the record is compared, and a record with another function or another member is not taken
if "$root/tests/abi.sh" "$build" >"$work/out" 2>&1; then
    count 1 0 0
    record=$(echo "$root"/tests/data/abi/libaprkit-*.xml)
    refuses() { sed "$1" "$record" >"$work/record.xml"; ! cmp -s "$record" "$work/record.xml" && ! "$root/tests/abi.sh" "$build" "$work/record.xml"; }
    check "a function that was removed is not noticed" refuses "s/'aprkit_gpu_name'/'aprkit_gpu_names'/"
    check "a member that was changed is not noticed" refuses "s/'hidden_size'/'width'/"
elif [ $? -eq 77 ]; then count 0 0 3; echo "skipped: the binary interface needs abigail-tools, on x86-64"
else fail "the binary interface"; cat "$work/out"; fi
# what a library may not do to its program (_exit is called by a child process that tries a GPU)
quiet() { ! nm -D -u "$lib/libaprkit.so" | grep -E ' (exit|abort|printf|puts|signal|sigaction|setenv|setlocale)(@|$)'; }
check "the library prints, ends the process or handles signals" quiet

# verbs are doors to the library: which of its functions their objects call
calls() { local calls; calls=$(nm -u "$build/tools/verbs/$1.c.o"); shift; for name; do grep -q " aprkit_$name\$" <<<"$calls" || { echo "$name is not called"; return 1; }; done; }
check "conversions" calls convert/conversion model_open convert model_close
check "aprplan" calls plan/plan model_open plan_make plan_fits plan_close
check "sessions of verbs" calls run/running model_open session_open session_close
check "prompts" calls run/generate generate
check "tokenize and detokenize" calls run/tokenize session_open tokenize detokenize
check "verify" calls check/verify verify report_info report_check report_html report_close
echo '#include <aprkit.h>' >"$work/alone.c"
cp "$work/alone.c" "$work/alone.cpp"
check "the header in C11" cc -std=c11 -Wall -Wextra -pedantic -Werror -fsyntax-only -I"${header%/*}" "$work/alone.c"
check "the header in C++17" c++ -std=c++17 -Wall -Wextra -pedantic -Werror -fsyntax-only -I"${header%/*}" "$work/alone.cpp"
cat >"$work/program.cpp" <<'CPP'
#include <aprkit.h>
#include <cstring>
int main()
{
    aprkit_model *model = nullptr;
    aprkit_error error;
    return aprkit_model_open(&model, "/nothing", nullptr, &error) == APRKIT_E_IO && !model && !std::strcmp(aprkit_version(), APRKIT_VERSION) ? 0 : 1;
}
CPP
flags() { pkg-config --cflags --libs "$@" aprkit 2>/dev/null || echo "-I$work/tree/usr/include -L$lib -laprkit $( [ "$1" != --static ] || sed -n 's/^Libs.private: //p' "$lib/pkgconfig/aprkit.pc")"; }
check "a program in C++" c++ -std=c++17 "$work/program.cpp" $(flags) -o "$work/program"
check "a program in C++ runs" "$work/program"

cd "$work" || exit 2
examples=$root/tools/examples model=$root/tests/data/tiny-qwen2
check "quantize.c" cc -Wall -Wextra -Werror "$examples/quantize.c" $(flags) -o quantize
check "quantize.c, statically" cc "$examples/quantize.c" -I"${header%/*}" "$lib/libaprkit.a" $(flags --static) -o quantize-static
check "quantize runs" ./quantize "$model" a.gguf q8_0 rtx4090
check "quantize-static runs" env LD_LIBRARY_PATH= ./quantize-static "$model" b.gguf q8_0
"$build/aprquant" -q "$model" c.gguf q8_0 >/dev/null 2>&1
check "the library writes what aprquant writes" cmp a.gguf c.gguf
check "the static library writes what aprquant writes" cmp b.gguf c.gguf
refused() { ./quantize /nothing x.gguf q8_0 >said 2>&1; [ $? -eq 3 ] && grep -q /nothing said && [ ! -e x.gguf ]; }
check "quantize says what is wrong" refused

# A checkpoint that takes long enough to be interrupted: zeros, of which the disk stores nothing.
cat >interrupt.py <<'PY'
import json, os, signal, subprocess, sys
hidden, inner, layers, vocabulary = 1024, 4096, 8, 4096
config = json.load(open(sys.argv[1] + "/config.json"))
heads = config["num_attention_heads"]
config.update(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, vocab_size=vocabulary, num_key_value_heads=heads)
config.pop("layer_types", None)
shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden], "lm_head.weight": [vocabulary, hidden]}
for i in range(layers):
    layer = f"model.layers.{i}."
    for name, shape in (("self_attn.q_proj", [hidden, hidden]), ("self_attn.k_proj", [hidden, hidden]), ("self_attn.v_proj", [hidden, hidden])):
        shapes[layer + name + ".weight"], shapes[layer + name + ".bias"] = shape, [hidden]
    shapes[layer + "self_attn.o_proj.weight"], shapes[layer + "mlp.down_proj.weight"] = [hidden, hidden], [hidden, inner]
    shapes[layer + "mlp.gate_proj.weight"] = shapes[layer + "mlp.up_proj.weight"] = [inner, hidden]
    shapes[layer + "input_layernorm.weight"] = shapes[layer + "post_attention_layernorm.weight"] = [hidden]
if config.get("tie_word_embeddings"): del shapes["lm_head.weight"]
os.makedirs("long"), os.makedirs("empty")
json.dump(config, open("long/config.json", "w"))
at, header = 0, {}
for name, shape in shapes.items():
    n = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
    at += n
text = json.dumps(header).encode()
with open("long/model.safetensors", "wb") as f:
    f.write(len(text).to_bytes(8, "little") + text)
    f.truncate(8 + len(text) + at)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would ignore it
p = subprocess.Popen(["./quantize", "long", "empty/x.gguf", "q4_k_m"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
said = b""
while b"%" not in said and (more := p.stderr.read(1)): said += more
p.send_signal(signal.SIGINT)
said += p.stderr.read()
left = os.listdir("empty")
print(p.wait(), said.decode()[-200:], left)
sys.exit(not (p.returncode == 8 and b"cancelled" in said and left == []))
PY
mkdir nothing
# contexts LANGUAGE COMPILER...: a truncated file, and a core of a program that got a signal, are left in no other folder
contexts() {
    "${@:2}" -Wall -Wextra -Werror "$root/tests/library/contexts.c" -x none $(flags) -pthread -o "contexts-$1" || return 1
    cp -r --sparse=always long "long-$1" && (cd nothing && "../contexts-$1" "$model/tiny-qwen2-Q4_K_M.gguf" "$model" "../long-$1") && [ -z "$(ls -A nothing)" ]
}
if python3 -c '' 2>/dev/null; then
    check "Ctrl-C leaves a file, or is not noticed" python3 interrupt.py "$model"
    check "threads, cancelling and truncated files in C11" contexts c11 cc -std=c11 -D_XOPEN_SOURCE=700
    check "threads, cancelling and truncated files in C++17" contexts c++17 c++ -std=c++17 -x c++
    answer() { python3 "$examples/ask.py" "$model" 'Why is the sky blue?' >said && [ "$(wc -c <said)" -gt 5 ]; }
    check "ask.py" answer
    check "ask.py says what aprrun says" diff said <("$build/aprrun" -q "$model" --chat -p 'Why is the sky blue?' -n 200)
    table() { python3 "$examples/fits.py" "$root/tests/data/shapes/qwen3-8b.json" q4_k_m 32768 >said && [ "$(wc -l <said)" -gt 20 ] && grep -q 'rtx4090 .* yes' said && grep -q ' no ' said; }
    check "fits.py" table
else count 0 0 5; echo "skipped: python3 is not here"; fi
close_counts library
