#!/bin/sh
# arm.sh BUILD_DIR - builds for 64-bit Arm with a cross compiler and runs, under qemu-user, the tests of what has NEON vectors there:
# codecs, their levels, products. Nothing is installed: the libraries of that architecture are unpacked below BUILD_DIR.
# Wants aarch64-linux-gnu-gcc and qemu-aarch64 (Debian: gcc-aarch64-linux-gnu qemu-user), and Debian's archive for the libraries.
set -e
build=$1
tests='half codecs levels products lanes unpack transcode'
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null || { echo "check-arm: skipped, there is no $tool here"; exit 0; }
done
root=$PWD/$build/root
if [ ! -f "$root/done" ]; then
    apt=$PWD/$build/apt
    mkdir -p "$root" "$apt/lists/partial" "$apt/archives/partial"
    own="-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State=$apt -o Dir::State::status=$apt/status -o Dir::Cache=$apt -o Debug::NoLocking=1"
    : >"$apt/status"
    apt-get $own update
    # shellcheck disable=SC2086
    (cd "$apt/archives" && apt-get $own download libcjson1 libcjson-dev libcmocka0 libcmocka-dev libzstd1 libzstd-dev libpcre2-8-0 libpcre2-dev \
        libutf8proc2 libutf8proc-dev libdeflate0 libdeflate-dev)
    for deb in "$apt"/archives/*.deb; do dpkg -x "$deb" "$root"; done
    : >"$root/done"
fi
lib=$root/usr/lib/aarch64-linux-gnu
make --no-print-directory -s CUDA=0 B="$build" CC=aarch64-linux-gnu-gcc \
    CPPFLAGS="-isystem $root/usr/include" LDFLAGS="-L$lib -Wl,-rpath-link,$lib" UNITS="$tests" "$build/unit"
failed=0
for t in $tests; do
    if qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$lib" "$build/unit" "$t" >"$build/$t.out" 2>&1; then
        echo "$t: $(grep -c '^\[       OK' "$build/$t.out") passed on $(qemu-aarch64 --version | head -n 1)"
    else
        failed=1
        grep -v '^\[ RUN\|^\[       OK' "$build/$t.out" || :
        echo "$t: FAILED"
    fi
done
exit $failed
