#!/bin/bash
# packages.sh BUILD_DIR [deb] - what is given away. The archive of make dist has the same bytes twice, whatever umask and time zone say,
# and knows its commit; make sbom names each library that the programs are linked with.
#
# deb: also Debian packages, built twice in two folders with different locales, time zones, permissions and numbers of threads: the same
# bytes, no error of lintian, every protection of hardening-check, no path of the build in the programs. Takes two whole builds. Run as
# root where debootstrap works (CHROOT=no leaves that out), the package is also installed into a fresh system, and README's commands and
# man aprrun are run there, also by autopkgtest.
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) || exit 2
work=$(mktemp -d) || exit 2
unset MAKEFLAGS MAKELEVEL MFLAGS
. "$root/tests/counts.sh"
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$work/said" 2>&1; then count 1 0 0; else
        echo "FAILED packages: $what"
        tail -n 15 "$work/said"
        count 0 1 0
    fi
}
has() { command -v "$1" >/dev/null || { echo "skipped, because $1 is not here"; count 0 0 1; false; }; }
cd "$root" || exit 2
version=$(sed -n 's/^.define APR_VERSION "\(.*\)"/\1/p' "$root/tools/report/page.h")
release=$(sed -n '/^## /{s/^## \([0-9.]*\) (.*/\1/p;q}' "$root/CHANGELOG.md")
check "aprkit.h has the version $version" grep -q "^#define APRKIT_VERSION \"$version\"" tools/engine/aprkit.h
check "the newest entry of CHANGELOG.md is $release, the version $version" test "$version" = "$release"

# --- make dist ---
if [ -e .git ] && has git; then
    (umask 077 && TZ=Asia/Tokyo tools/packaging/dist.sh "$version" "$work/a/aprkit.tar.gz") >"$work/sum-a" 2>/dev/null
    (umask 002 && TZ=UTC LC_ALL=C.UTF-8 tools/packaging/dist.sh "$version" "$work/b/aprkit.tar.gz") >"$work/sum-b" 2>/dev/null
    check 'two archives are the same' cmp "$work/a/aprkit.tar.gz" "$work/b/aprkit.tar.gz"
    check 'the sum that is printed is that of the archive' sh -c 'cd "$1/a" && sha256sum -c "$1/sum-b"' - "$work"
    tar -xf "$work/a/aprkit.tar.gz" -C "$work"
    check 'the archive has the files of the commit' sh -c 'cd "$1" && git ls-tree -r --name-only HEAD | LC_ALL=C sort >"$2/of-git" &&
        (cd "$2/aprkit-$3" && find . ! -type d | sed "s|^./||" | LC_ALL=C sort) | cmp - "$2/of-git"' - "$root" "$work" "$version"
    check 'it knows its commit' test "$("$work/aprkit-$version/tools/packaging/commit.sh")" = "$(git rev-parse HEAD | cut -c 1-12)"
fi

# --- make sbom ---
if has dpkg-query && has python3; then
    check 'the SBOM' env SOURCE_DATE_EPOCH=0 tools/packaging/sbom.sh "$version" c0ffee "$build"/apr{conv,quant,plan,run}
    cp "$work/said" "$work/sbom.json"
    cat >"$work/linked.py" <<'END'
import json, re, subprocess, sys
document = json.load(open(sys.argv[1]))
names = {p['name'] for p in document['packages']}
assert document['creationInfo']['created'] == '1970-01-01T00:00:00Z'
assert len(document['files']) == len(sys.argv) - 2
for program in sys.argv[2:]:
    for path in re.findall(r'=> (/\S+)', subprocess.run(['ldd', program], stdout=subprocess.PIPE, text=True, check=True).stdout):
        real = subprocess.run(['readlink', '-f', path], stdout=subprocess.PIPE, text=True).stdout.strip()
        owner = [subprocess.run(['dpkg-query', '-S', p], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.split(':')[0]
                 for p in (path, real, '/usr' + path, real.removeprefix('/usr'))]
        assert names & set(filter(None, owner)), f'{path} is in none of {sorted(names)}'
ids = {e['SPDXID'] for e in document['packages'] + document['files']} | {'SPDXRef-DOCUMENT'}
for r in document['relationships']:
    assert {r['spdxElementId'], r['relatedSpdxElement']} <= ids, r
END
    check 'it names the package of each library' python3 "$work/linked.py" "$work/sbom.json" "$build"/apr{conv,quant,plan,run}
fi
if [ "${2-}" != deb ]; then
    rm -rf "$work"
    close_counts 'archives and packages'
    exit
fi

# --- Debian packages ---
trap 'rm -rf "$work"' EXIT
has dpkg-buildpackage && has dh && has lintian && has hardening-check || { close_counts 'archives and packages'; exit; }
begin=$SECONDS
(LC_ALL=C.UTF-8 TZ=UTC tools/packaging/deb.sh "$version" "$work/first") >"$work/log" 2>&1 || tail -n 30 "$work/log"
echo "a package is built in $((SECONDS - begin)) s"
(umask 027 && LC_ALL=C LANG=de_DE.UTF-8 TZ=Pacific/Kiritimati DEB_BUILD_OPTIONS=parallel=3 \
    tools/packaging/deb.sh "$version" "$work/second/folder") >"$work/log" 2>&1 || tail -n 30 "$work/log"
for deb in "$work"/first/*.deb; do
    check "built twice, ${deb##*/} is the same" cmp "$deb" "$work/second/folder/${deb##*/}"
    sha256sum "$deb" | sed "s|$work/||"
    stat -c '%n: %s bytes' "$deb" | sed "s|$work/||"
done
lintian "$work"/first/*.changes >"$work/lintian" 2>&1
cat "$work/lintian"
check 'lintian finds no error' sh -c '! grep "^E:" "$1"' - "$work/lintian"
packages=("$work"/first/libaprkit0_*.deb "$work"/first/aprkit_*.deb) # in the order in which they are installed
for deb in "${packages[@]}"; do dpkg-deb -x "$deb" "$work/root"; done
check 'the tools come with the library of their version' sh -c 'dpkg-deb -f "$1" Depends | grep -qF "libaprkit0 (= $(dpkg-deb -f "$1" Version))"' - "${packages[1]}"
for program in "$work"/root/usr/bin/* "$work"/root/usr/lib/*/libaprkit.so."$version"; do
    hardening-check "$program" >"$work/hardening"
    # hardening-check knows stack clash protection by the loop of an array of variable length, which aprkit does not have
    check "every protection of ${program##*/}" sh -c '! grep ": \(no\|unknown\)" "$1" | grep -v "Stack clash protection: unknown\|(ignored)"' - "$work/hardening"
    case $program in
    *.so.*) check 'large frames of the library are touched page by page' sh -c 'objdump -d "$1" | grep -q "orq  *\$0x0,(%rsp)"' - "$program" ;;
    *) check "${program##*/} loads libaprkit.so.0 from where the system has it" sh -c 'readelf -d "$1" | grep -q "NEEDED.*libaprkit.so.0" && ! readelf -d "$1" | grep -E "R(UN)?PATH"' - "$program" ;;
    esac
    check "no path of the build in ${program##*/}" sh -c '! grep -aq "$2/first" "$1"' - "$program" "$work"
done
if [ "${CHROOT-}" != no ] && [ "$(id -u)" = 0 ] && has debootstrap; then
    export SYSTEM=${SYSTEM:-$work/system}
    tests/packages_chroot.sh "${packages[@]}" && count 1 0 0 || count 0 1 0
    has autopkgtest && check 'autopkgtest' autopkgtest -B "${packages[@]}" "$work/first/aprkit-$version/" -- chroot "$SYSTEM"
fi
close_counts 'archives and packages'
