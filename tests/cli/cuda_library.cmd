# A CUDA library that does not belong to this program, or is none, is refused with one sentence and exit code 7. Nothing of it is called.
root=$(dirname "$(dirname "$(readlink -f data)")")
cp "$(command -v aprrun)" .
echo 'int driver;' | cc -shared -fPIC -x c - -o libcuda.so.1 # the tools look for a driver first
export LD_LIBRARY_PATH="$PWD"

# The number of this tree, as a compiler makes it here: the tool's must be the same, whichever compiler and flags it was built with.
"$root/kernels/cuda/interface.sh" >number.h
printf '#include "kernels/cuda/api.h"\n#include <stdio.h>\nint main(void) { return printf("%%016llx", (unsigned long long)APR_CUDA_ABI) < 0; }\n' >number.c
cc -std=c11 -I"$root" -include ./number.h number.c -o number && number=$(./number)

library() { # C: becomes the library next to the tool
    printf '%s\n' 'struct apr_cuda_description { char mark[16]; unsigned long long abi; char architectures[104]; };' "$1" |
        cc -shared -fPIC -x c - -o libaprkit-cuda.so
}
ask() {
    echo "== $1"
    shift
    "$@" >said 2>&1 </dev/null
    code=$?
    sed -E "s|$PWD|.|g; s/$number/THIS/g; s/(cannot open shared object file|file too short|invalid ELF header).*/\1/; /^host /d" said
    echo "exit code $code"
}
ask none ./aprrun doctor --quick --device cuda
echo 'no library' >libaprkit-cuda.so
ask 'a text file' ./aprrun doctor --quick --device cuda
library 'int other;'
ask 'another library' ./aprrun doctor --quick --device cuda
library 'const char apr_cuda_build[] = "something"; void *apr_cuda_plugin(unsigned long long abi) { __builtin_trap(); }'
ask 'another library with such a symbol' ./aprrun doctor --quick --device cuda
library 'void *apr_cuda_plugin(unsigned abi) { __builtin_trap(); }'
ask 'an older library' ./aprrun doctor --quick --device cuda
library 'struct apr_cuda_description apr_cuda_build = {"aprkit CUDA", 0x0123456789abcdef, "80 90"};
    void *apr_cuda_plugin(unsigned long long abi) { __builtin_trap(); }'
ask 'another build' ./aprrun doctor --quick --device cuda
ask 'another build, asked to run' ./aprrun --device cuda data/tiny-qwen2 -n 3 -p 'In the beginning'
ask 'another build, where the host will do' ./aprrun --device auto data/tiny-qwen2 -n 3 -p 'In the beginning'
library "struct apr_cuda_description apr_cuda_build = {\"aprkit CUDA\", 0x${number}, \"90\"};"
# Without --device cuda the host's figures are the answer.
ask 'a library that cannot be used, and nothing was asked of it' ./aprrun doctor --quick
ask 'this build, without its table' ./aprrun doctor --quick --device cuda
library "struct apr_cuda_description apr_cuda_build = {\"aprkit CUDA\", 0x${number}, \"90\"};
    void *apr_cuda_plugin(unsigned long long abi) { return 0; }"
ask 'this build, with no table for it' ./aprrun doctor --quick --device cuda
