#!/bin/sh
# hostile_flags.sh BUILD_DIR - compiles every codec once more with flags that a user may give and that would change results, and compares
# what both builds make of the same numbers (tests/support/make_blocks.c). BUILD_DIR is a release build with its make_blocks.
cd "$(dirname "$0")/.." || exit 2
build=$1
hostile=build/hostile
flags='-Ofast -march=native -ffast-math -funsafe-math-optimizations -ffp-contract=fast -freciprocal-math -fno-signed-zeros -std=gnu17'
case $("${CC:-cc}" --version) in *clang*) ;; *) flags="$flags -fsingle-precision-constant" ;; esac
[ "$(uname -m)" != x86_64 ] || flags="$flags -mfpmath=sse"

objects=$(make -s B=$hostile print-codec-objects)
make --no-print-directory -s CUDA=0 B=$hostile CFLAGS="$flags" $objects &&
    ${CC:-cc} -o $hostile/make_blocks $objects "$build/libaprkit.a" -fopenmp -lcjson -lzstd -ldeflate -lpcre2-8 -lutf8proc -ldl -lm || exit 1
"$build/make_blocks" >$hostile/wanted && $hostile/make_blocks >$hostile/made || exit 1
n=$(wc -l <$hostile/wanted)
[ "$n" -gt 0 ] || { echo "hostile flags: make_blocks printed nothing"; exit 1; }
if ! diff $hostile/wanted $hostile/made >$hostile/differ; then
    echo "hostile flags: other bytes with CFLAGS='$flags' (<: as built, >: with them):"
    head -n 20 $hostile/differ
    exit 1
fi
rm -rf $hostile
echo "hostile flags: $n codecs of all levels give the same bytes with CFLAGS='$flags'"
