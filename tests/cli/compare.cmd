# several versions against one reference: the figures of kld, what fits a GPU, the frontier, and what was kept
for type in q8_0 q5_k_m q4_0 mxfp4; do aprquant -q --to $type data/tiny-qwen2 $type.gguf >/dev/null 2>&1 || exit; done
head -c 6000 data/heldout.txt >text
aprrun compare -q q8_0.gguf q4_0.gguf mxfp4.gguf --ref data/tiny-qwen2 --text text --window 64 --json --state kept --html page.html >answer || exit
sed -n 's/<script type="application.json" id="answer">\(.*\)<.script>/\1/p' page.html | sed 's/\\u003c/</g' | cmp - answer
rows() { tr '{' '\n' <"$1" | grep '^"model"' | sed "s/.*\"model\":\"\([^\"]*\)\".*\"$2\":\([^,}]*\).*/\1 \2/"; }
rows answer on_frontier
rows answer kept | cut -d ' ' -f 2 | sort | uniq -c | tr -s ' '
# each figure is the one that kld states
for name in q8_0 q4_0 mxfp4; do
    aprrun kld -q $name.gguf --ref data/tiny-qwen2 text --window 64 --json >k
    for key in kl_mean same_top perplexity kl_mean_95 positions; do
        of() { grep -o "\"$key\":\(\[[^]]*\]\|[^,}]*\)" | head -n 1; }
        [ "$(tr '{' '\n' <answer | grep "\"model\":\"$name" | of)" = "$(of <k)" ] || echo "$name: another $key"
    done
done
# one more candidate is one more measurement; another text is another comparison; a damaged file is not believed
ls kept | wc -l
aprrun compare -q q8_0.gguf q4_0.gguf mxfp4.gguf q5_k_m.gguf --ref data/tiny-qwen2 --text text --window 64 --json --state kept >again
rows again kept
ls kept | wc -l
for key in kl_mean same_top perplexity positions; do [ "$(rows again $key | grep -v q5)" = "$(rows answer $key)" ] || echo "another $key"; done
aprquant -q --to q8_0 --tensor 'layers.1.*down=q4_0' data/tiny-qwen2 q8_0.gguf -f >/dev/null 2>&1 # other weights under the same name
aprrun compare -q q8_0.gguf --ref data/tiny-qwen2 --text text --window 64 --json --state kept >other && rows other kept
for f in kept/*; do echo '{"aprrun_compare":1,' >$f; done
aprrun compare -q q4_0.gguf --ref data/tiny-qwen2 --text text --window 64 --state kept 2>&1 | sed 's/kept.*json/FILE/' | cut -c 1-60
# the table, the sentence, the best values of the page
aprrun compare -q q5_k_m.gguf q4_0.gguf mxfp4.gguf --ref data/tiny-qwen2 --gpu rtx3060 --html page.html | sed -E 's/[0-9]+\.[0-9]+/N/g; s/[0-9]+(,[0-9]{3})+/N/g; s/ +/ /g; s/[0-9]+ %/N %/g; s/loses [0-9N]+/loses N/'
grep -oE '<b class="best">' page.html | wc -l
aprrun compare -q q4_0.gguf mxfp4.gguf --ref data/tiny-qwen2 --bench --json | grep -oE '"(decode|prompt)_per_second":[1-9]' | cut -d : -f 1 | sort | uniq -c | tr -s ' '
# refusals come before any measurement
exec 2>&1
aprrun compare q4_0.gguf --ref data/tiny-qwen2 --window 1; echo $?
aprrun compare q4_0.gguf; echo $?
aprrun compare q4_0.gguf --ref data/tiny-qwen2 --gpu nothing; echo $?
aprrun compare q4_0.gguf --ref data/tiny-qwen2 --hash; echo $?
aprrun compare q4_0.gguf missing.gguf --ref data/tiny-qwen2 -q --html new.html; echo $?
ls *.html
