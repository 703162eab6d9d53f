#!/bin/sh
# Figures: an F16 GGUF of a 7B shape to Q4_K_M, Q8_0 and MXFP4 on the GPU, from memory-backed file to memory-backed file.
#
# usage: gpu_bench_quant.sh BIN_DIR [CONFIG.json] [DIR in memory]. Needs about 40 GB there for the 7B shape. Times are of the
# whole process, start and end included; three runs each, after one that warms up; then the host once, and cp. Also compares
# the bytes with the host's: exit code 1 where they differ.
bin=$1
config=${2:-tests/data/shapes/qwen2.5-7b.json}
dir=$(mktemp -d "${3:-/dev/shm}/aprkit-bench.XXXXXX") || exit 3
trap 'rm -rf "$dir"' EXIT

# seconds COMMAND...: runs it and prints how long it took
seconds() {
    begin=$(date +%s%N)
    "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    end=$(date +%s%N)
    awk -v ns=$((end - begin)) 'BEGIN {printf "%.2f", ns / 1e9}'
}

sed 's/"bfloat16"/"float16"/' "$config" >"$dir/config.json"
bad=0
echo "writing the input"
"$bin/bench_synth" "$dir/config.json" "$dir/checkpoint" || exit 1
"$bin/aprconv" convert --quiet "$dir/checkpoint" "$dir/f16.gguf" >/dev/null || exit 1
rm -rf "$dir/checkpoint"
du -h "$dir/f16.gguf" | cut -f1
for type in q4_k_m q8_0 mxfp4; do
    for run in warm-up 1 2 3; do
        rm -f "$dir/device.gguf"
        s=$(seconds "$bin/aprquant" --quiet --device cuda --to $type "$dir/f16.gguf" "$dir/device.gguf")
        echo "$type $run: $s s, of which converting $(grep -oE '[0-9.]+ s,' "$dir/log")"
    done
    s=$(seconds "$bin/aprquant" --quiet --device host --to $type "$dir/f16.gguf" "$dir/host.gguf")
    same="the same bytes"
    cmp -s "$dir/device.gguf" "$dir/host.gguf" || { same="OTHER BYTES"; bad=1; }
    echo "$type on the host: $s s, $same"
    rm -f "$dir/device.gguf" "$dir/host.gguf"
done
echo "cp of the input: $(seconds cp "$dir/f16.gguf" "$dir/copy") s"
exit $bad
