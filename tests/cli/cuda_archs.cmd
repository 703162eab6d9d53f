# The CUDA library is built for the GPUs that are here, for what ARCHS says, or as a package has it. No GPU and no nvcc are needed to see.
root=$(dirname "$(dirname "$(readlink -f data)")")
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES ARCHS CUDA
say() { printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }
mkdir bin
PATH=$PWD/bin:$PATH
say bin/nvcc '[ "$1" = --list-gpu-code ] && printf "sm_%s\n" 75 80 86 87 88 89 90 100 110 103 120 121 compute_75 || echo release 1.0,'
build() { make -C "$root" --no-print-directory B="$PWD/b" CUDA=1 "$@"; }
here() { # WORDS CARD...: what is said where these cards are
    words=$1
    shift
    say bin/nvidia-smi "printf '%s\n' $(printf "'%s' " "$@")"
    echo "== $words: $(build doctor | sed -n 's/nvidia-smi does not say which GPU is here/no GPU is found here/; s/^CUDA library *//p')"
}
here 'one card' 9.0
here 'two alike' 8.9 8.9
here 'two, the newer first' 12.0 7.5
here 'a card that packages have no code for' 8.7
here 'a card newer than nvcc' 13.0
here 'a card between two that nvcc knows' 10.1
here 'a card that is too old' 7.0
here 'a driver that does not know the question' 'Field "compute_cap" is not a valid field to query.'
say bin/nvidia-smi 'echo "No devices were found"; exit 6'
echo "== a driver and no card: $("$root/kernels/cuda/archs.sh" --card | wc -l) cards"
here 'one card again' 9.0
for archs in all 90 '90 80'; do echo "== ARCHS=$archs: $(build doctor "ARCHS=$archs" | sed -n 's/^CUDA library *//p')"; done
echo "== CUDA=0: $(build doctor CUDA=0 | sed -n 's/^CUDA library *//p')"
echo "== no nvcc: $(build doctor CUDA=0 NVCC=not-here | sed -n 's/^CUDA library *//p')"

# what nvcc is called with; one kernel needs 9.0a
code() {
    build -n "$@" "$PWD/b/cuda/ops/norm.cu.o" "$PWD/b/cuda/small_gemm/small_gemm_wgmma.cu.o" >said
    sed -n 's/^  CUDA //p' said
    grep -oE -e '-gencode arch=[^ ]*|-DAPR_CUDA_ARCHITECTURES=[^-]*"|-c kernels[^ ]*' said | sed 's/^-gencode arch=/    /'
}
echo '== code for the card'
code
echo '== and once more: nothing is new, but there is no library yet'
code | head -n 1
echo '== and with one'
touch b/libaprkit-cuda.so
code | head -n 1
echo '== ARCHS=all'
code ARCHS=all
echo '== what needs no CUDA library'
for goal in bench check-memory check-kills; do build -n "$goal" | sed -n 's/.* \(CUDA=[^ ]*\) all.*/\1/p;/[Nn]vcc .*-c/p' | sort -u; done
