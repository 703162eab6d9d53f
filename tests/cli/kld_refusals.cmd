exec 2>&1
aprrun kld data/tiny-qwen2 data/heldout.txt; echo $?
cp -rL data/tiny-qwen2 other && chmod -R u+w other && sed -i 's/im_start/im_begin/' other/tokenizer.json
cmp -s other/tokenizer.json data/tiny-qwen2/tokenizer.json && echo 'nothing was changed'
aprrun kld data/tiny-qwen2 --ref other data/heldout.txt; echo $?
aprrun kld data/tiny-qwen2 --ref missing data/heldout.txt; echo $?
aprrun kld data/tiny-qwen2 --ref data/tiny-qwen2 data/heldout.txt --window 100000; echo $?
aprrun kld data/tiny-qwen2 --ref data/tiny-qwen2 data/heldout.txt --window 512 --ctx 256; echo $?
printf a | aprrun kld data/tiny-qwen2 --ref data/tiny-qwen2 -; echo $?
aprrun kld data/tiny-qwen2 --ref data/tiny-qwen2 data/heldout.txt --memory 10M --json >m; echo $?
grep -oE '"status":"[a-z ]*"|both models at once need|use a reference of a smaller type' m
