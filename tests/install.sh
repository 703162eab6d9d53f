#!/bin/sh
# install.sh BUILD_DIR - make install, install-strip and uninstall, of what BUILD_DIR has: every file arrives where it belongs and works
# there, and uninstall removes what install wrote, the folders that it made, and nothing else.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
. "$root/tests/counts.sh"
good() { count 1 0 0; }
bad() {
    echo "FAILED $*"
    count 0 1 0
}
check() { # WHAT COMMAND...
    what=$1
    shift
    if "$@" >"$work/said" 2>&1; then good; else
        bad "$what"
        head -n 10 "$work/said"
    fi
}
# Nothing is built: -o says that what is there counts as made.
make_() { (cd "$root" && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s -o all -o docs -o library B="${build#"$root"/}" CUDA=0 "$@"); }
list() { (cd "$1" && find . -type f -o -type l | sort); }
is_empty() { [ -z "$(find "$1" -mindepth 1)" ] || { find "$1" -mindepth 1; false; }; }
no_symbols() { nm "$1" 2>&1 | grep -q 'no symbols'; }

to="$work/a folder"
check 'install' make_ install DESTDIR="$to" PREFIX=/usr
for tool in aprconv aprquant aprplan aprrun; do
    check "$tool is installed as it was built" cmp "$build/$tool" "$to/usr/bin/$tool"
    check "$tool works there" "$to/usr/bin/$tool" --version
done
list "$to" >"$work/first"
(cd "$to" && find . | sort) >"$work/all"
check 'the record lists every file' sh -c 'sed -n "s|^file |.|p" "$1/usr/lib/aprkit/installed" | sort | cmp - "$2"' - "$to" "$work/first"
check 'install again' make_ install DESTDIR="$to" PREFIX=/usr
check 'the same files' sh -c 'cd "$1" && find . | sort | cmp - "$2"' - "$to" "$work/all"
check 'uninstall' make_ uninstall DESTDIR="$to" PREFIX=/usr
check 'the folder that install made is gone' test ! -e "$to"

# What was there before stays: a file, and an empty folder that install also uses.
mkdir -p "$to/usr/bin" "$to/usr/lib/aprkit" && echo mine >"$to/usr/bin/aprother"
(cd "$to" && find . | sort) >"$work/before"
check 'install-strip' make_ install-strip DESTDIR="$to" PREFIX=/usr
for tool in aprconv aprquant aprplan aprrun; do
    check "$tool has no symbols" no_symbols "$to/usr/bin/$tool"
    check "$tool works without symbols" "$to/usr/bin/$tool" --version
done
check 'with and without symbols, the same files' sh -c 'cd "$1" && find . -type f -o -type l | grep -v aprother | sort | cmp - "$2"' - "$to" "$work/first"
# a file of an older version
echo 'file /usr/bin/aprold' >>"$to/usr/lib/aprkit/installed" && echo old >"$to/usr/bin/aprold"
check 'install over an older version' make_ install DESTDIR="$to" PREFIX=/usr
check 'what only the older one had is gone' test ! -e "$to/usr/bin/aprold"
check 'uninstall next to other files' make_ uninstall DESTDIR="$to" PREFIX=/usr
check 'what was there before is there' sh -c 'cd "$1" && find . | sort | cmp - "$2"' - "$to" "$work/before"

# Every place can be somewhere else, and a record that was lost leaves only folders.
mkdir "$work/places"
check 'install to other places' make_ install DESTDIR="$work/places" prefix=/opt/apr bindir=/b libdir=/l/x includedir=/i datadir=/d mandir=/m
check 'no place was forgotten' test ! -e "$work/places/opt"
check 'a program at its place' test -x "$work/places/b/aprrun"
rm "$work/places/l/x/aprkit/installed"
check 'uninstall without a record' make_ uninstall DESTDIR="$work/places" prefix=/opt/apr bindir=/b libdir=/l/x includedir=/i datadir=/d mandir=/m
check 'no file is left' test -z "$(find "$work/places" -type f -o -type l)"
mkdir "$work/here" && (cd "$root" && make_ install PREFIX="$work/here" >/dev/null)
check 'a prefix without DESTDIR' "$work/here/bin/aprrun" --version

# The CUDA library is found in lib/aprkit, in Debian's folder for this machine, and next to the program before both.
echo 'int driver;' | "${CC:-cc}" -shared -fPIC -x c - -o "$work/libcuda.so.1" # the tools look for a driver first
finds() { # FOLDER: the library there is read, and refused, because it is a text
    mkdir -p "$work/here/$1" && echo 'no library' >"$work/here/$1/libaprkit-cuda.so"
    LD_LIBRARY_PATH=$work "$work/here/bin/aprrun" doctor --quick --device cuda 2>&1 | grep "bin/.*: \(file too short\|invalid ELF header\)" >"$work/found"
    [ "$(readlink -f "$(sed 's/.*available: //; s/:.*//' "$work/found")")" = "$work/here/$1/libaprkit-cuda.so" ]
}
triplet=$("${CC:-cc}" -print-multiarch 2>/dev/null)
[ -z "$triplet" ] || check "a CUDA library in lib/$triplet/aprkit" finds "lib/$triplet/aprkit"
check 'a CUDA library in lib/aprkit' finds lib/aprkit
check 'a CUDA library next to the program' finds bin
close_counts 'installed files'
