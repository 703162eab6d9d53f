# A folder's name from a stranger's archive holds an escape code: no answer and no sentence sends it to the terminal.
d=$(printf 'd\033[31m')
mkdir "$d"
raw() { "$@" >o 2>&1; code=$?; echo "$(basename "$1") $2: exit $code, $(grep -c "$(printf '\033')" o) raw lines, $(grep -q 'd\\x1b\[31m' o && echo shown clean)"; }
raw aprconv convert data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf "$d/m.gguf"
raw aprconv convert "$d/m.gguf" o.apr
raw aprconv convert "$d/m.gguf" "$d/m.gguf"
raw aprconv show "$d/m.gguf"
raw aprconv check "$d/m.gguf"
raw aprconv diff "$d/m.gguf" o.apr
raw aprquant -n -t q8_0 data/tiny-qwen2 "$d/o.gguf"
raw aprquant -t q8_0 --resume data/tiny-qwen2 "$d/o.gguf"
raw aprplan --host "$d/m.gguf"
raw aprrun bench "$d/m.gguf" -p 4 -n 2 --repeat 1
raw aprrun verify o.apr --no-parity --ref "$d/m.gguf"
echo "one two three four five six seven eight nine ten" >text
raw aprrun kld "$d/m.gguf" --ref o.apr text --window 4
