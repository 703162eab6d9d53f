#!/bin/sh
# independent_reader.sh BUILD_DIR - a reader that shares nothing with aprkit (tests/apr_reader.py, Python's standard library)
# must load what --profile aprender writes, misread nothing, and find all that a run needs.
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
for model in "$here/data/tiny-qwen2" "$here/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf"; do
    "$build/aprconv" convert -q --profile aprender "$model" "$work/model.apr" -f >/dev/null || exit 1
    python3 "$here/apr_reader.py" --run "$work/model.apr" >"$work/said" || { cat "$work/said"; exit 1; }
    echo "independent reader: nothing against $(basename "$model") as an APR file"
done
