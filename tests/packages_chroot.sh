#!/bin/sh
# packages_chroot.sh PACKAGE.deb [FOLDER] - installs a package into a fresh Debian system (debootstrap, bookworm, from MIRROR) and runs
# there what its own test runs: README's four commands and man aprrun. FOLDER: a system that is there, or is made there and kept.
set -e
root=$(cd "$(dirname "$0")/.." && pwd)
deb=$(readlink -f "$1")
system=${2-}
if [ -z "$system" ]; then
    system=$(mktemp -d)
    trap 'rm -rf "$system"' EXIT
fi
mkdir -p "$system" && chmod 755 "$system" # mandb gives root's rights up, and reads its libraries after that
needs=$(dpkg-deb -f "$deb" Depends | sed 's/([^)]*)//g; s/[, ]\+/,/g')
[ -x "$system/bin/sh" ] || debootstrap --variant=minbase --include="man-db,$needs" bookworm "$system" "${MIRROR:-http://deb.debian.org/debian}" >/dev/null
mkdir -p "$system/try/tests/data"
cp "$deb" "$system/try/aprkit.deb"
cp -r "$root/tests/data/tiny-qwen2" "$root/tests/data/shapes" "$system/try/tests/data/"
cp "$root/tools/packaging/debian/tests/readme" "$system/try/"
chroot "$system" dpkg -i /try/aprkit.deb
chroot "$system" env LC_ALL=C.UTF-8 HOME=/root sh -c 'cd /try && ./readme'
chroot "$system" dpkg -P aprkit >/dev/null
left=$(find "$system/usr" -name '*apr*' \( -name '*aprconv*' -o -name '*aprkit*' -o -name '*aprrun*' \))
[ -z "$left" ] || { echo "left after removal: $left"; exit 1; }
