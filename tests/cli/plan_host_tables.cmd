aprplan --gpu rtx4060ti --dtype q8_0 data/shapes/gemma-4-e2b.json
echo
aprplan --host --dtype q8_0 data/shapes/gemma-4-e2b.json | grep -E 'embeddings|read on the host' # in one place, there is nothing to copy
