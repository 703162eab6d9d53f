# The number on which tools and CUDA library agree (kernels/cuda/api.h) changes with everything that both must read in the same way, and with
# nothing else.
root=$(dirname "$(dirname "$(readlink -f data)")")
mkdir tree && cd tree && cp -r "$root/kernels" "$root/formats" .
text() { kernels/cuda/interface.sh; }
begin=$(text)
# edit FILE SED WORDS: is the half that is a hash of the text another one?
edit() {
    cp "$1" kept
    sed -E "$2" kept >"$1"
    ! cmp -s kept "$1" || echo "no such line in $1: $2"
    now=$(text) && [ "$now" = "$begin" ] && echo "same: $3" || echo "other: $3"
    cp kept "$1"
}
echo '== text'
edit kernels/cuda/api.h 's|^ \* Errors on a GPU.*|& (more words)|' 'a comment'
edit kernels/cuda/decode_gemv_args.h 's|^    APR_ROW_GROUP = 16,.*|	APR_ROW_GROUP  = 16,  // as before|' 'white space, and another kind of comment'
edit kernels/cuda/decode_gemv_args.h 's/APR_ROW_GROUP = 16/APR_ROW_GROUP = 32/' 'a constant'
edit kernels/cuda/decode_gemv_args.h 's/X\(Q4_K, 256\) X\(Q6_K, 256\)/X(Q6_K, 256) X(Q4_K, 256)/' 'the order of a list'
edit kernels/cuda/small_gemm_workspace.h 's/APR_SMALL_GEMM_MAX_SPLITS = 4/APR_SMALL_GEMM_MAX_SPLITS = 8/' 'what both count of a workspace'
edit kernels/ops.h 's/int64_t n_tokens, n_in, n_out;/int64_t n_tokens, n_out, n_in;/' 'two fields of equal size in another order'
edit kernels/ops.h '/X\(SLICE, slice, "slice"\)/{h;d;};/X\(JOIN, join, "join"\)/G' 'two operations in another order'
edit formats/number/dtype.h '/X\(Q4_0,/{h;d;};/X\(Q4_1,/G' 'two types in another order'
edit formats/number/blocks.h '0,/uint8_t/s//int8_t/' 'a block of numbers'
edit formats/tensor/canonical_layout.h '/APR_CANONICAL_SCALES,/{h;d;};/APR_CANONICAL_ZEROS,/G' 'the order of packed matrices in memory'
edit formats/tensor/packing.h 's/const char \*scheme;/const char *sketch;/' 'the name of a field'
rm kernels/out_of_range.h
text 2>&1 || echo 'and that is an error'
cp "$root/kernels/out_of_range.h" kernels/

echo '== layout'
cat >number.c <<'END'
#include "kernels/cuda/api.h"
#ifdef OTHER_THAN
#ifdef __cplusplus
static_assert((APR_CUDA_ABI) != OTHER_THAN, "same");
#else
_Static_assert((APR_CUDA_ABI) != OTHER_THAN, "same");
#endif
#else
#include <stdio.h>
int main(void) { return printf("0x%llxull\n", (unsigned long long)APR_CUDA_ABI) < 0; }
#endif
END
cc -std=c11 -I. number.c -o number && layout=$(./number)
# changes NAME COMPILER FLAGS...: is the number another one?
changes() {
    name=$1
    shift
    "$@" -I. -fsyntax-only -DOTHER_THAN="$layout" number.c 2>said && echo "other: $name" && return
    grep -q 'static.assert.*same' said && echo "same: $name" || head -n 3 said
}
changes 'C++' c++ -x c++ -std=c++17
changes '-O3' cc -std=c11 -O3 -D_POSIX_C_SOURCE=200809L
changes '-fshort-enums' cc -std=c11 -fshort-enums
changes '-fpack-struct' cc -std=c11 -fpack-struct -w
# every struct of these headers, with a field more
for header in kernels/cuda/api.h kernels/cuda/decode_gemv_args.h kernels/cuda/prompt_args.h kernels/cuda/rows_args.h kernels/op_args.h \
    kernels/ops.h kernels/activation.h kernels/topk.h kernels/out_of_range.h formats/tensor/packing.h; do
    for struct in $(sed -nE 's/^typedef (struct|union) ([a-z_0-9]+) \{.*/\2/p' $header); do
        [ "$struct" != apr_cuda_description ] || continue # it never changes
        cp $header kept
        sed -E "s/^typedef (struct|union) $struct \{/& double more[999];/" kept >$header
        changes "$struct" cc -std=c11
        cp kept $header
    done
done | awk '$1 != "other:" {print} $1 == "other:" {n++} END {print (n >= 50 ? "other: every struct of these headers" : n " structs")}'
for struct in 'formats/tensor/model.h struct apr_tensor' 'formats/base/status.h typedef struct apr_error' \
    'formats/number/dtype.h typedef struct apr_dtype_facts' 'formats/tensor/step.h typedef struct apr_step'; do
    header=${struct%% *}
    cp $header kept
    sed -E "s/^${struct#* } \{/& double more;/" kept >$header
    changes "${struct##* }" cc -std=c11
    cp kept $header
done
cp formats/number/dtype.h kept
sed -E '/X\(Q4_0,/{h;d;};/X\(Q4_1,/G' kept >formats/number/dtype.h
changes 'two types of equal size in another order' cc -std=c11
sed -E 's/^    X\(Q4_1,/    X(TOY, "toy", BLOCK, 32, 18, INSIDE, false, -1, 250, NULL) \\\n&/' kept >formats/number/dtype.h
changes 'a type in the middle' cc -std=c11
cp kept formats/number/dtype.h
