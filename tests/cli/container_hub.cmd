# a folder of the hub's cache: by itself, by its snapshot, half downloaded
cache=models--org--tiny snapshot=models--org--tiny/snapshots/0123abcd
mkdir -p $cache/refs $cache/blobs $snapshot
printf 0123abcd >$cache/refs/main
for file in config.json model.safetensors tokenizer.json; do
    cp data/tiny-llama/$file $cache/blobs/sha-$file && ln -s ../../blobs/sha-$file $snapshot/$file
done
find $cache | sort >before
aprconv convert $cache a.apr >/dev/null && aprconv convert $snapshot b.apr >/dev/null && cmp a.apr b.apr && echo the same
aprrun golden --checks logits $cache data/tiny-llama/golden.json >/dev/null && echo runs
find $cache | sort | cmp - before && echo nothing was written there
mkdir $cache/snapshots/9999 && rm $cache/refs/main
aprconv show $cache 2>&1
echo "exit $?"
printf 0123abcd >$cache/refs/main && mv $cache/blobs/sha-model.safetensors $cache/blobs/sha-model.safetensors.incomplete
aprconv show $cache 2>&1
echo "exit $?"
