#!/bin/bash
# deb.sh VERSION FOLDER - Debian packages of this tree in FOLDER, built in FOLDER/aprkit-VERSION by dpkg-buildpackage, without network.
#
# In a checkout the commit is packed, as make dist archives it; elsewhere these files. debian/ is a copy of tools/packaging/debian.
# debian/changelog is made of CHANGELOG.md. libaprkit0 and libaprkit-dev are added where there is a library, tools/engine/aprkit.h.
set -euo pipefail
unset MAKEFLAGS MAKELEVEL MFLAGS
root=$(cd "$(dirname "$0")/../.." && pwd)
version=$1
mkdir -p "$2" && folder=$(cd "$2" && pwd)
tree=$folder/aprkit-$version
[ ! -e "$tree" ] || { echo "deb: removing $tree"; rm -rf "$tree"; }
cd "$root"
if [ -e .git ]; then
    tools/packaging/dist.sh "$version" "$folder/aprkit-$version.tar.gz"
    tar -xf "$folder/aprkit-$version.tar.gz" -C "$folder"
else
    mkdir "$tree" && tar --exclude=./build -cf - . | tar -xf - -C "$tree"
fi
cd "$tree"
cp -r tools/packaging/debian debian
if [ -e tools/engine/aprkit.h ]; then cat debian/control.library >>debian/control; else rm debian/libaprkit*; fi
rm debian/control.library
# "## 0.2.0 (2026-11-27)", and its points until the next heading
awk -v maintainer="$(sed -n 's/^Maintainer: //p' debian/control)" '
    function close_entry() { if (date != "") printf "\n -- %s  %s\n\n", maintainer, date; date = "" }
    /^## / {
        close_entry()
        gsub(/[()]/, "", $3)
        ("LC_ALL=C date -u -R -d " $3) | getline date
        printf "aprkit (%s-1) unstable; urgency=medium\n\n", $2
        next
    }
    date == "" || NF == 0 {next}
    /^- / {sub(/^- /, "  * "); print; next}
    /^#/ {next}
    {sub(/^ +/, ""); print "    " $0}
    END {close_entry()}' CHANGELOG.md | sed 's/`//g' >debian/changelog
dpkg-buildpackage -us -uc -b
cd "$folder" && sha256sum ./*.deb
