# as a page and as JSON: sums by layer and by kind, nothing left open, nothing from elsewhere; and only an older report is replaced
aprquant -q --to q4_k_m --report page.html data/tiny-qwen2 out.gguf >/dev/null 2>&1 || exit
count() { grep -oE "$1" page.html | wc -l; }
for tag in html head body main style div table tr td th p h1 h2 code span svg text; do
    [ "$(count "<$tag[ >]")" -gt 0 ] || echo "no $tag"
    [ "$(count "<$tag[ >]")" -eq "$(count "</$tag>")" ] || echo "$tag is left open"
done
count '<script>|<script src|src=|href="[^#]'
for words in 'Size by kind of tensor' 'Error by layer' 'Error by kind of tensor' 'blk.1.ffn_down.weight' 'bits per weight' 'ffn down, one of those with more bits'; do
    grep -q "$words" page.html && echo "$words"
done
grep -o '<title>out[^<]*' page.html
count '<svg'
aprquant -q --to q4_k_m --report report.json -f data/tiny-qwen2 out.gguf >/dev/null 2>&1
# the sums are those of the tensors
sum() { tr '{' '\n' <report.json | grep -E "$1" | grep -oE "\"$2\":[0-9]+" | awk -F: '{n += $2} END {print n}'; }
all=$(sum '"name":"[^"]*","from"' bytes)
[ "$(sum '^"purpose"' bytes_after)" = "$all" ] && [ "$(sum '^"layer"' bytes_after)" = "$all" ] && echo "sums of bytes"
[ "$(sum '^"purpose"' tensors)" = 26 ] && [ "$(sum '^"layer"' tensors)" = 26 ] && echo "sums of tensors"
tr '{' '\n' <report.json | grep '^"layer"' | grep -oE '"relative_error":[0-9.]+' | awk -F: '{print ($2 > 0.01 && $2 < 0.1 ? "an error" : "no error: " $2)}'
for name in page.html report.json; do aprquant -q --to q8_0 --report $name -f data/tiny-qwen2 out.gguf >/dev/null 2>&1 && echo "$name replaced"; done
echo mine >mine.html && aprquant -q --to q8_0 --report mine.html -f data/tiny-qwen2 out.gguf >/dev/null 2>err; echo $? && cat mine.html
# by importance, and with feedback: what they came from, and what they did not reach
aprrun imatrix -q data/tiny-qwen2 data/heldout.txt -o m.gguf --ctx 64 --chunks 4 >/dev/null
aprquant -q --to q4_k_m --imatrix m.gguf --report page.html -f data/tiny-qwen2 out.gguf >/dev/null 2>&1
grep -oE 'Importance</h2>|From <code>m.gguf.*' page.html
sed -n '/Importance<.h2>/,/Without/p' page.html | grep -oE '<tr><td[^>]*>[^<]*</td>(<td[^>]*>[0-9]+</td>){2}</tr>' | sed 's/<[^>]*>/ /g' | sort | head -n 3
grep -o 'Without importance: .*' page.html
aprquant -q --to q4_k_m --method ldlq --tokens 512 --window 128 --rounds 0 --report page.html -f data/tiny-qwen2 out.gguf >/dev/null 2>&1
grep -A1 'Error feedback</h2>' page.html | sed -E 's/<[^>]*>//g; s/[0-9a-f]{8}/CRC/; s/0\.[0-9]{3}/0.x/g'
for tag in table tr td p code; do [ "$(count "<$tag[ >]")" -eq "$(count "</$tag>")" ] || echo "$tag is left open"; done
aprquant -q --to q4_k_m --imatrix m.gguf --report report.json -f data/tiny-qwen2 out.gguf >/dev/null 2>&1
grep -oE '"covered":[0-9]+|"not_covered":\[[^]]*\]' report.json
# what a model says of itself, and what it is called, is text
cp -rL data/tiny-qwen2 'm<script>&"' && chmod -R u+w 'm<script>&"'
sed -i 's/"model_type": "qwen2"/"model_type": "<script>\&\\""/; s/Qwen2ForCausalLM/<script>/' 'm<script>&"/config.json'
aprquant -q --to q8_0 --report 'page<script>&".html' 'm<script>&"' 'out<script>&".apr' >/dev/null 2>&1; echo $?
sed -n '/<h1>/,/<\/p>/p' 'page<script>&".html'
