#!/bin/bash
# abi.sh [--record] BUILD_DIR [RECORD] - compares the binary interface of BUILD_DIR/lib/libaprkit.so with the recorded one: its functions, and
# the structs and enums of tools/engine/aprkit.h. Fails with what abidiff says on every difference, harmless ones too.
#
# --record writes the record, after a function was added or a member was appended to its struct. It refuses what breaks programs that
# were compiled before: that needs another APRKIT_ABI in aprkit.h, which has a record of its own.
# Exits with 77 where it cannot compare: abigail-tools are not here, the machine is not x86-64, or the types are clang's.
root=$(cd "$(dirname "$0")/.." && pwd)
mode=check
[ "$1" != --record ] || { mode=record; shift; }
library=${1:?abi.sh [--record] BUILD_DIR [RECORD]}/lib/libaprkit.so
number=$(awk '$2 == "APRKIT_ABI" {print $3}' "$root/tools/engine/aprkit.h")
record=${2:-$root/tests/data/abi/libaprkit-$number.xml}
command -v abidw >/dev/null && [ "$(uname -m)" = x86_64 ] && case $1 in *clang*) false ;; esac || exit 77
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
mkdir "$work/public" && cp "$root/tools/engine/aprkit.h" "$work/public/" || exit 2
# what tools that are linked with the library see besides (make SHARED=1) is not part of it
for what in function variable; do printf '[suppress_%s]\n symbol_name_regexp = ^aprkit_private_\n drop = yes\n' $what; done >"$work/private"
abidw --suppressions "$work/private" --headers-dir "$work/public" --drop-private-types --exported-interfaces-only --no-show-locs --no-corpus-path --no-comp-dir-path \
    --no-elf-needed --no-write-default-sizes "$library" >"$work/now.xml" || exit 2
grep -q "name='aprkit_convert_options'" "$work/now.xml" || { echo "abi.sh: $library has no types: was it stripped?"; exit 2; }
[ -e "$record" ] || [ $mode = record ] || { echo "abi.sh: $record is missing: write it with tests/abi.sh --record BUILD_DIR"; exit 1; }
if [ -e "$record" ]; then abidiff --harmless "$record" "$work/now.xml" >"$work/said" 2>&1; code=$?; else code=4; fi
[ $code -ne 0 ] || exit 0
breaks='[1-9][0-9]* Removed|[1-9][0-9]* Removed function symbol|deletion|offset changed|was removed|was added|return type changed|type of .* changed|value changed|name of .* changed'
if [ $mode = record ] && [ -e "$record" ] && grep -qE "$breaks" "$work/said"; then
    cat "$work/said"
    echo "abi.sh: this breaks programs that were compiled before: it needs another APRKIT_ABI"
    exit 1
fi
if [ $mode = record ]; then
    mkdir -p "${record%/*}" && cp "$work/now.xml" "$record"
    exit
fi
cat "$work/said"
echo "abi.sh: the binary interface is not the recorded one; if nothing was removed or changed, write it with tests/abi.sh --record $1"
exit 1
