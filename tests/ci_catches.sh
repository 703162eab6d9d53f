#!/bin/sh
# ci_catches.sh [NAME...] - proves that the steps of CI fail when they should. For each fault below: a copy of the checkout with its build,
# the fault, and the step of .ci/run that must fail and say so. Prints what CI said. Takes an hour on two cores; NAMEs take less.
cd "$(dirname "$0")/.." || exit 2
root=$PWD
work=$(mktemp -d -p build) || exit 2
trap 'rm -rf "$work"' EXIT
work=$root/$work
bad=0

# fault NAME "STEP" "WORDS" - in the copy, the edit on standard input (shell) is made, then STEP must fail, with WORDS in what it says
fault() {
    name=$1 step=$2 words=$3
    edit=$(cat)
    case " $wanted " in *" $name "*) ;; *) [ -z "$wanted" ] || return 0 ;; esac
    rm -rf "$work/copy" && mkdir -p "$work/copy/build" &&
        git ls-files -co --exclude-standard -z | xargs -0 ls -d 2>/dev/null | tar -cf - -T - | tar -xf - -C "$work/copy" || exit 2
    for b in release asan-clang tsan-clang; do [ ! -d build/$b ] || cp -a build/$b "$work/copy/build/"; done
    (cd "$work/copy" && git init -q . && git add -A && git -c user.name=t -c user.email=t@t commit -qm t && set -e && eval "$edit") || { echo "$name: cannot make the fault"; exit 2; }
    if (cd "$work/copy" && WERROR=1 && export WERROR && eval "$step") >"$work/said" 2>&1 </dev/null; then
        echo "FAILED $name: '$step' passes"
        bad=1
    elif ! grep -qE "$words" "$work/said"; then
        echo "FAILED $name: '$step' fails, but does not say '$words':"
        tail -n 5 "$work/said"
        bad=1
    else
        echo "$name: $step says: $(grep -E "$words" "$work/said" | head -n 1 | cut -c 1-200)"
    fi
}
wanted=$*

fault unformatted 'make layers lint' 'not formatted' <<'END'
printf 'int  main( void ){ return 0; }\n' >tools/odd.c && git add tools/odd.c
END
fault clang_only_warning 'make asan' 'error: .*-W' <<'END'
printf '\nint apr_odd(int x);\nint apr_odd(int x) { return (x = x); }\n' >>kernels/topk.c
END
fault heap_overrun 'make asan' 'heap-buffer-overflow' <<'END'
sed -i 's|^    const struct CMUnitTest tests\[\] = {|    char *volatile p = malloc(8);\n    p[8] = 1;\n    free(p);\n&|' tests/formats/test_base64.c
grep -q 'p\[8\]' tests/formats/test_base64.c
END
fault leak 'make asan' 'LeakSanitizer' <<'END'
sed -i 's|^    const struct CMUnitTest tests\[\] = {|    void *volatile p = malloc(8);\n    assert_non_null(p);\n    p = NULL;\n&|' tests/formats/test_base64.c
grep -q 'p = NULL' tests/formats/test_base64.c
END
fault data_race 'tests/proved.sh run tsan' 'data race' <<'END'
sed -i 's|^int main(void)|static int raced;\nstatic void race(void)\n{\n#pragma omp parallel for\n    for (int i = 0; i < 100000; i++) raced += i;\n}\n\n&|; s|^    const struct CMUnitTest tests\[\] = {|    race();\n&|' tests/kernels/test_ops_threads.c
grep -q 'race();' tests/kernels/test_ops_threads.c
END
fault toy_list 'make toys' 'differ' <<'END'
sed -i 's|^\*\*To add a mixture:\*\* one row in `quant/mixtures.c`|**To add a mixture:** one row in `quant/recipe.c`|' CONTRIBUTING.md
END
fault spill 'make check-archs' 'bytes spill' <<'END'
cat >kernels/cuda/ops/odd.cu <<'CU'
__global__ void __launch_bounds__(1024, 2) k_odd(float *x) /* 32 registers a thread, and 96 numbers to keep */
{
    float v[96];
#pragma unroll
    for (int i = 0; i < 96; i++) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 96; i++) x[i * 1024 + threadIdx.x] = v[95 - i] * v[i];
}
CU
END
fault missing_architecture 'make check-archs' 'architectures' <<'END'
sed -i "s|^\(package=.*\) 103|\1|" kernels/cuda/archs.sh
grep -q '100 120' kernels/cuda/archs.sh
END
fault missing_code 'make check-archs' 'no code for sm_' <<'END'
sed -i 's|^\(\$B/cuda/ops/norm.cu.o.*\)$||' Makefile
printf '\n$B/cuda/ops/norm.cu.o $B/cuda/ops/norm.cu.key: gencode := -gencode arch=compute_90,code=sm_90\n' >>Makefile
END
[ $bad -eq 0 ] && echo "ci_catches: every fault was seen"
exit $bad
