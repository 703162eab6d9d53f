#!/bin/sh
# layers.sh [--table | --modules] - fails when a file includes a module that its own may not, or when files include each other in a
# circle. --table prints who may include whom. --modules prints figures of each module: files, lines, the longest file and function, and
# what it includes; then the totals.
#
# A module is a folder with sources. A line says what it may include besides itself: folders (without their sub-folders) or single headers.
# A module with sub-folders is also what they share: its headers are below them, its other files above.
# * is all that is not in tools. Modules of tools that are not in the table may include everything. What is in tools/engine prints nothing.
table='
formats/base
formats/files            formats/base
formats/number           formats/base
formats/tensor           formats/base formats/files formats/number formats/shape/hparams.h formats/vocab/vocab.h
formats/vocab            formats/base formats/files formats/number formats/tensor
formats/shape            formats/base formats/files formats/number formats/tensor formats/vocab
formats/shape/families   formats/base formats/number formats/tensor formats/shape
formats/torch            formats/base formats/files formats/number formats/tensor
formats/gguf             formats/base formats/files formats/number formats/tensor formats/shape formats/vocab
formats/packed           formats/base formats/files formats/number formats/tensor formats/shape
formats/hf               formats/base formats/files formats/number formats/tensor formats/shape formats/vocab formats/packed formats/torch
formats/apr              formats/base formats/files formats/number formats/tensor formats/shape formats/vocab formats/packed
formats                  formats/base formats/files formats/number formats/tensor formats/shape formats/vocab formats/gguf formats/hf formats/apr formats/torch
kernels                  formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels/ref kernels/cuda kernels/host/codecs
kernels/ref              formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels
kernels/host             formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/ref kernels/host/products
kernels/host/grad        formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/ref kernels/host
kernels/host/codecs      formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/ref
kernels/host/products    formats/base formats/number
kernels/cuda             formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels
kernels/cuda/device      formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda
kernels/cuda/codecs      formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/ref kernels/cuda kernels/cuda/device
kernels/cuda/feedback    formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/ref kernels/cuda kernels/cuda/device kernels/cuda/codecs
kernels/cuda/common      formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda kernels/cuda/device kernels/cuda/codecs
kernels/cuda/gemv        formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda kernels/cuda/device kernels/cuda/codecs kernels/cuda/common
kernels/cuda/small_gemm  formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda kernels/cuda/device kernels/cuda/codecs kernels/cuda/common kernels/cuda/gemv
kernels/cuda/gemm        formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda kernels/cuda/device kernels/cuda/codecs kernels/cuda/common kernels/cuda/gemv kernels/cuda/small_gemm
kernels/cuda/attention   formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda kernels/cuda/device kernels/cuda/codecs kernels/cuda/common kernels/cuda/gemv kernels/cuda/small_gemm kernels/cuda/gemm
kernels/cuda/moe         formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda kernels/cuda/device kernels/cuda/codecs kernels/cuda/common kernels/cuda/gemv kernels/cuda/small_gemm kernels/cuda/gemm
kernels/cuda/recurrent   formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda kernels/cuda/device kernels/cuda/codecs kernels/cuda/common
kernels/cuda/grad        formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda kernels/cuda/device kernels/cuda/common kernels/cuda/gemm
kernels/cuda/ops         formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda kernels/cuda/device kernels/cuda/codecs kernels/cuda/common kernels/cuda/gemv kernels/cuda/small_gemm kernels/cuda/gemm kernels/cuda/attention kernels/cuda/moe kernels/cuda/recurrent
quant                    formats/base formats/files formats/number formats/tensor formats/shape formats/vocab formats/packed kernels
quant/feedback           formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/ref kernels/cuda
quant/heal               formats/base formats/number formats/tensor kernels kernels/host/codecs quant/feedback
convert                  formats/base formats/files formats/number formats/tensor formats/shape formats/vocab formats/packed kernels kernels/cuda quant
runtime/tokenizer        formats/base formats/files formats/number formats/tensor formats/shape formats/vocab
runtime/template         formats/base formats/files formats/number formats/tensor formats/shape formats/vocab
runtime/program          formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels
runtime/program/blocks   formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels runtime/program
runtime/program/families formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels runtime/program
runtime/program/ops      formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda runtime/program
runtime/plan             formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda runtime/program
runtime/session          formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda runtime/program runtime/plan
runtime/train            formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda runtime/program runtime/plan
runtime/distill          formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels kernels/cuda runtime/program runtime/plan runtime/train
runtime/calibrate        formats/base formats/files formats/number formats/tensor formats/shape formats/vocab kernels runtime/program runtime/plan runtime/session runtime/train runtime/check
runtime/check            formats/base formats/files formats/number formats/tensor formats/shape formats/vocab formats/apr kernels runtime/tokenizer runtime/template runtime/program runtime/plan runtime/session
tools/engine             *
tools/engine/device      * tools/engine
tools/engine/plan        * tools/engine
tools/engine/compat      * tools/engine tools/engine/quantize
tools/engine/run         * tools/engine tools/engine/device
tools/engine/requests    * tools/engine tools/engine/run
tools/engine/bench       * tools/engine tools/engine/plan tools/engine/run
tools/engine/quantize    * tools/engine
tools/engine/heal        * tools/engine tools/engine/quantize
tools/engine/convert     * tools/engine tools/engine/device tools/engine/heal tools/engine/quantize tools/engine/run
tools/engine/distill     * tools/engine tools/engine/device tools/engine/run
tools/engine/library     * tools/engine tools/engine/convert tools/engine/device tools/engine/plan tools/engine/requests tools/engine/run tools/report/verify
tools/report             *
tools/report/verify      * tools/report
tools/cli                * tools/report
'
cd "$(dirname "$0")/.." || exit 2
[ "$1" != --table ] || { printf '%s' "$table"; exit 0; }
# Functions run from a '{' in the first column to a '}' there; their name stands in the lines before, in front of a '('.
longest_function() {
    awk '
        FNR == 1 {start = 0; name = ""}
        {line = $0; gsub(/__(attribute|launch_bounds)__\(+[^()]*(\([^()]*\))*\)+ */, "", line)}
        line ~ /^[A-Za-z_].*\(/ && line !~ /;$/ {name = line; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)}
        /^\{/ {start = FNR}
        /^\}/ {if (start && FNR - start + 1 > most) {most = FNR - start + 1; longest = name} start = 0}
        END {if (most) printf "%s (%d)", longest, most; else printf "-"}' "$@"
}
# Files of each folder, the fullest first.
folders() {
    git ls-files formats kernels quant convert runtime tools | grep -E '\.(c|h|cu|cuh)$' | sed 's|/[^/]*$||' | sort | uniq -c | sort -rn
}
modules() {
    printf '%-24s %5s %6s  %-34s %-38s %s\n' module files lines 'longest file' 'longest function' includes
    for module in $(printf '%s' "$table" | awk 'NF && !/^tools/ {print $1}') $(find tools -type d | sort); do
        files=$(git ls-files "$module" | awk -v n="$(echo "$module/" | tr -dc / | wc -c)" -F/ 'NF == n + 1 && /\.(c|h|cu|cuh)$/')
        [ -n "$files" ] || continue
        lines=$(cat $files | wc -l)
        longest=$(wc -l $files | grep -v ' total$' | sort -rn | head -n 1 | awk '{n = $1; sub(/.*\//, "", $2); print $2 " (" n ")"}')
        includes=$(sed -nE 's|^ *# *include "([^"]+)/[^/"]+".*|\1|p' $files | sort -u | grep -vx "$module" | tr '\n' ' ')
        printf '%-24s %5d %6d  %-34s %-38s %s\n' "$module" "$(echo "$files" | wc -l)" "$lines" "$longest" "$(longest_function $files)" "${includes% }"
    done
    lines_of() { git ls-files "$@" | grep -E '\.(c|h|cu|cuh)$' | xargs cat 2>/dev/null | wc -l; }
    fullest=$(folders | head -n 1)
    printf 'product %d lines (tools %d, of these engine %d), tests %d lines; the fullest folder is %s\n' "$(lines_of formats kernels quant convert runtime tools)" \
        "$(lines_of tools)" "$(lines_of tools/engine)" "$(lines_of tests)" "$(echo "$fullest" | awk '{print $2 " with " $1 " files"}')"
}
[ "$1" != --modules ] || { modules; exit 0; }
bad=$(mktemp) && edges=$(mktemp) || exit 2
trap 'rm -f "$bad" "$edges"' EXIT
grep -rnE '^ *# *include "' --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' formats kernels quant convert runtime tools |
    sed -nE 's/^([^:]+):([0-9]+): *# *include "([^"]+)".*/\1 \2 \3/p' >"$edges"
printf '%s' "$table" | awk -v edges="$edges" '
    function folder(path) {sub(/\/[^\/]*$/, "", path); return path}
    NF {known[$1] = 1; for (i = 2; i <= NF; i++) may[$1, $i] = 1}
    END {
        while ((getline line < edges) > 0) {
            split(line, e, " ")
            from = folder(e[1]); to = folder(e[3])
            if (from == to || !(from in known)) {
                if (from != to && from !~ /^tools/) printf "%s: the room %s is in no table\n", e[1], from
                continue
            }
            if ((from, "*") in may && to !~ /^tools/) continue
            if (!((from, to) in may) && !((from, e[3]) in may)) printf "%s:%s: %s may not include %s\n", e[1], e[2], from, e[3]
        }
    }' >"$bad"
awk '$1 != $3 {print $1, $3}' "$edges" | tsort 2>&1 >/dev/null | sed -n 's/^tsort: -: input contains a loop:/files include each other in a circle:/p; s/^tsort: \([^-]\)/  \1/p' >>"$bad"
grep -rnE '\<(v?f?printf|f?puts|f?putc|putchar|stdout|stderr)\>' --include='*.c' tools/engine | sed 's/"[^"]*"//g; s|/\*.*||; s/format(printf//' |
    sed -nE '/\<(v?f?printf|f?puts|f?putc|putchar|stdout|stderr)\>/s/$/: the engine prints nothing/p' >>"$bad"
folders | awk '$1 > 30 {print $2 " has " $1 " files: at most 30 are found at a glance"}' >>"$bad"
[ ! -s "$bad" ] || { cat "$bad"; exit 1; }
echo "layers: nothing found"
