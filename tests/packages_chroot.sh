#!/bin/sh
# packages_chroot.sh PACKAGE.deb... - installs packages, in this order, into a fresh Debian system (debootstrap, bookworm, from MIRROR) and
# runs there what aprkit's own test runs: README's four commands and man aprrun. $SYSTEM: a folder with a system, or where one is made and
# kept.
set -e
root=$(cd "$(dirname "$0")/.." && pwd)
system=${SYSTEM-}
if [ -z "$system" ]; then
    system=$(mktemp -d)
    trap 'rm -rf "$system"' EXIT
fi
mkdir -p "$system" && chmod 755 "$system" # mandb gives root's rights up, and reads its libraries after that
needs=$(for deb in "$@"; do dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed 's/([^)]*)//; s/ //g'; done | grep -vx libaprkit0 | sort -u | paste -sd,)
[ -x "$system/bin/sh" ] || debootstrap --variant=minbase --include="man-db,$needs" bookworm "$system" "${MIRROR:-http://deb.debian.org/debian}" >/dev/null
mkdir -p "$system/try/tests/data"
names=
for deb in "$@"; do
    cp "$deb" "$system/try/"
    names="$names /try/$(basename "$deb")"
done
cp -r "$root/tests/data/tiny-qwen2" "$root/tests/data/shapes" "$system/try/tests/data/"
cp "$root/tools/packaging/debian/tests/readme" "$system/try/"
chroot "$system" dpkg -i $names
chroot "$system" env LC_ALL=C.UTF-8 HOME=/root sh -c 'cd /try && ./readme'
chroot "$system" dpkg -P aprkit libaprkit0 >/dev/null
left=$(find "$system/usr" -name '*apr*' \( -name '*aprconv*' -o -name '*aprkit*' -o -name '*aprrun*' \))
[ -z "$left" ] || { echo "left after removal: $left"; exit 1; }
