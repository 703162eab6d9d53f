# a random student of two layers learns from the bundled model: losses and the held-out divergence fall, whatever the number of threads;
# what is written is what was measured, in every format
make_family data/distill student && cp data/tiny-qwen2/tokenizer.json data/tiny-qwen2/tokenizer_config.json student/
head -c 12000 data/heldout.txt >text.txt
learn() { aprrun distill data/tiny-qwen2 student text.txt --steps 24 --tokens 64 --window 64 --rate 1e-2 "$@"; }
learn -o one/ --threads 1 --loss one.json --html one.html --no-stamp >text; echo "= $?"
grep -vE '^  (step|held-out|first|last|standard)' text
grep -cE '^  step +[0-9]+  [0-9]\.[0-9]{6}$' text
learn -o three.gguf --threads 3 --loss three.json --json | grep -oE '"(ok|windows|windows_held_out|tokens_per_step|output)":[^,}]*' | tr '\n' ' ' && echo
cmp one.json three.json && aprconv diff one three.gguf | tail -n 1
learn -o two.apr >/dev/null && aprconv diff one two.apr | tail -n 1
# the file of losses: better, and by more than three standard errors
number() { sed "s/.*\"$1\":\([0-9.e-]*\).*/\1/" one.json; }
awk "BEGIN {print ($(number held_out_after) < $(number held_out_before) - 0.5 && $(number loss_first_tenth) - $(number loss_last_tenth) > 3 * $(number standard_error)) ? \"falls\" : \"does not fall\"}"
kl() { aprrun kld -q "$1" --ref data/tiny-qwen2 text.txt --window 64 --max-windows 24 --json | grep -oE '"kl_mean":[0-9.]+' | cut -d: -f2; }
awk "BEGIN {print ($(kl one) < $(kl student) - 0.5) ? \"closer to the teacher\" : \"not closer\"}"
grep -oE '<h1>[^<]*</h1>|windows that no step has seen' one.html
