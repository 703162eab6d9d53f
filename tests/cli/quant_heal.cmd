# the finished file is trained: as many bytes, the same names and types, nearer to the source on another text; the same bytes for any number of threads
head -c 6000 data/heldout.txt >text.txt
tail -c 5000 data/heldout.txt >judge.txt
method='--to q4_0 --method ldlq --calibration text.txt --tokens 256 --window 64 --rounds 0'
heal() { aprquant -q $method --heal --judge judge.txt --heal-steps 25 --heal-tokens 64 --resume data/tiny-llama parts.gguf >/dev/null; }
aprquant -q $method data/tiny-llama ldlq.gguf >/dev/null
OMP_NUM_THREADS=2 aprquant --json --report page.html $method --heal --judge judge.txt --heal-steps 25 --heal-tokens 64 data/tiny-llama healed.gguf >said.json; echo $?
[ $(stat -c %s healed.gguf) = $(stat -c %s ldlq.gguf) ] && ! cmp -s healed.gguf ldlq.gguf && echo 'as many bytes, others'
for f in ldlq healed; do aprconv show $f.gguf >$f.txt; done
cmp -s ldlq.txt healed.txt || diff ldlq.txt healed.txt | grep -vE '^[<>].*(ldlq|healed).gguf|^[0-9-]'
of() { sed 's/.*"healing"//' said.json | grep -oE "\"$1\":[^],}]*" | head -n 1 | cut -d: -f2; }
echo "healed $(of healed), $(of tensors) tensors, $(of text_tokens) + $(of own_tokens) tokens, best after $(of best_step) steps"
awk -v a=$(of judge_before) -v b=$(of judge_after) -v f=$(of fall) -v e=$(of fall_standard_error) 'BEGIN {d = a - b - f; print (f > 2 * e && d * d < 1e-18 ? "lower by more than two standard errors" : a " " b " " f " " e)}'
awk -v n=$(of codes) -v t=$(of codes_turned) 'BEGIN {print (t > 0 && t < n / 5 ? "some codes turned" : t " of " n)}'
# what it says is what kld finds in the file
kld() { aprrun kld -q $1 --ref data/tiny-llama judge.txt --window 64 --kv f32 --json | grep -oE '"kl_mean":[^,]*' | cut -d: -f2; }
awk -v a=$(of judge_before) -v b=$(of judge_after) -v x=$(kld ldlq.gguf) -v y=$(kld healed.gguf) 'BEGIN {print ((a - x) ^ 2 < 1e-12 && (b - y) ^ 2 < 1e-12 ? "as kld finds" : a " " b " kld " x " " y)}'
sed -n '/Healing<.h2>/,/<.p>/p' page.html | sed -E 's/<[^>]*>//g; s/[0-9]+\.[0-9]+(e-?[0-9]+)?/x/g'
# ended by a signal, and continued on one thread
for wait in 0.5 1.2; do
    OMP_NUM_THREADS=1 timeout --preserve-status -s INT $wait aprquant -q $method --heal --judge judge.txt --heal-steps 25 --heal-tokens 64 --resume data/tiny-llama parts.gguf >/dev/null 2>ended
    code=$?
    [ $code -eq 0 ] && break
    [ $code -eq 130 ] && grep -qE '^aprquant: stopped( with [0-9]+ % kept in parts.gguf.resume; run the same command to continue|; nothing was written)$' ended || cat ended
done
[ $code -eq 0 ] || OMP_NUM_THREADS=1 heal
cmp healed.gguf parts.gguf && echo 'the same bytes'
ls
