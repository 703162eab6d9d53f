# one grade for each way in which a model can differ from its reference; the page says the same as the table, and its JSON is the answer
grade() {
    aprrun verify -q --no-parity --tokens 8 "$1" --ref data/tiny-qwen2 --json --html page.html >answer 2>err
    echo "$2: $(grep -oE '"grade":"[a-z_]*"' answer), exit $?"
    grep -oE '<span class="pill big [a-z]*">[^<]*' page.html
    sed -n 's/<script type="application.json" id="answer">\(.*\)<.script>/\1/p' page.html | sed 's/\\u003c/</g' | cmp - answer
    aprrun verify -q --no-parity --tokens 8 "$1" --ref data/tiny-qwen2 2>err >table
    echo "exit $?; $(grep -oE '^[A-Z][a-z ]* ?[a-z0-9_ ]*[.]$' table); $(cut -c 1-60 err)"
}
aprconv convert -q data/tiny-qwen2 m.apr >/dev/null && grade m.apr 'the same in another container'
aprquant -q --to f32 data/tiny-qwen2 f32.gguf >/dev/null 2>&1 && grade f32.gguf 'larger types'
aprquant -q --to q4_k_m data/tiny-qwen2 q4.gguf >/dev/null 2>&1 && grade q4.gguf 'quantized'
# two heads of one matrix changed places
cp -rL data/tiny-qwen2 m && chmod -R u+w m && f=m/model.safetensors
begin=$(($(od -An -N8 -tu8 $f) + 8))
offset=$(head -c $begin $f | grep -ao '"model.layers.1.self_attn.q_proj.weight":{[^}]*' | sed 's/.*data_offsets":\[\([0-9]*\),.*/\1/')
at=$((begin + offset)) n=$((64 * 256 * 2))
dd if=$f of=first bs=1 skip=$at count=$n 2>/dev/null
dd if=$f of=second bs=1 skip=$((at + n)) count=$n 2>/dev/null
cat second first | dd of=$f bs=1 seek=$at conv=notrunc 2>/dev/null
grade m 'two heads swapped'
# other angles
cp data/tiny-qwen2/model.safetensors m/ && sed -i 's/"rope_theta": 1000000.0/"rope_theta": 2000000.0/' m/config.json
grade m 'another theta'
# without the stamp, two pages are the same; with it they say how they were made
for i in 1 2; do
    aprrun verify -q --no-parity --tokens 8 q4.gguf --ref data/tiny-qwen2 --html page$i.html --no-stamp >/dev/null
    sed -i 's/[0-9.]* [KM]iB predicted, [0-9.]* [KM]iB//; /measured/d; /id="answer"/d' page$i.html
done
cmp page1.html page2.html
grep -c 'made by' page1.html
grep -oE '<dt>(command|date|aprkit|host|CPU)' page.html
sed -n 's/<dt>command<.dt><dd><code>\(.*\)<.code><.dd>/\1/p' page.html
# header and list of tensors, or the whole file
n=$(sed -n '/<code>q4.gguf/,$s/.*SHA-256.*tensors (\([0-9,]*\) bytes.*/\1/p' page1.html | head -n 1 | tr -d ,)
[ "$(sed -n '/<code>q4.gguf/,$s/.*SHA-256<.dt><dd><code>\([0-9a-f]*\)<.*/\1/p' page1.html | head -n 1)" = "$(head -c "$n" q4.gguf | sha256sum | cut -c 1-64)" ] && echo 'the sum of the head'
aprrun verify -q --no-parity --tokens 8 q4.gguf --ref q4.gguf --html page.html --hash >/dev/null
grep -c "$(sha256sum q4.gguf | cut -c 1-64)</code> of the whole file" page.html
aprrun verify q4.gguf --ref q4.gguf --hash
