#!/bin/bash
# sbom.sh VERSION COMMIT PROGRAM... - what the programs are linked with, as an SPDX 2.3 document in JSON: each shared library's Debian
# package and version (dpkg-query), the archives of the compiler that are linked in, and the programs' checksums. The creation date is
# SOURCE_DATE_EPOCH, or now.
set -euo pipefail
version=$1 commit=$2
shift 2
command -v dpkg-query >/dev/null || { echo "sbom: dpkg-query is not here, which knows the packages of libraries" >&2; exit 5; }
architecture=$(dpkg --print-architecture)
distribution=$(. /etc/os-release && echo "$ID")

# dpkg knows /lib/... or /usr/lib/...
package_of() {
    local name
    for name in "$1" "${1#/usr}" "/usr$1" "$(readlink -f "$1")"; do
        dpkg-query -S "$name" 2>/dev/null | head -n 1 | cut -d : -f 1 | grep . && return
    done
    echo "sbom: no package has $1" >&2
    return 1
}
libraries=$(for program; do ldd "$program"; done | awk '$2 == "=>" && $3 ~ "^/" {print $3}' | sort -u)
dynamic=$(for library in $libraries; do package_of "$library" || exit; done | sort -u)
# the start files and libgcc; and libgomp's archive, if its functions are in the programs
static=$(for file in libgcc.a $(nm "$1" 2>/dev/null | grep -q ' [tT] GOMP_parallel$' && echo libgomp.a); do
    package_of "$(readlink -f "$(${CC:-cc} -print-file-name="$file")")" || exit
done | sort -u)

quoted() { printf '%s' "$1" | sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$/"/'; }
id() { printf '%s' "$1" | tr -c 'A-Za-z0-9.-' '-'; }
licenses() { # the short names in a machine-readable copyright file, for people; none is concluded
    sed -n 's/^License: *//p' "/usr/share/doc/$1/copyright" 2>/dev/null | sort -u | head -n 12 | paste -sd ';' | sed 's/;/; /g'
}
package() { # NAME
    local v source names
    v=$(dpkg-query -W -f '${Version}\n' "$1" | head -n 1)
    source=$(dpkg-query -W -f '${source:Package}\n' "$1" | head -n 1)
    names=$(licenses "$1")
    printf ',\n    {"SPDXID": "SPDXRef-%s", "name": %s, "versionInfo": %s, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,\n' \
        "$(id "$1")" "$(quoted "$1")" "$(quoted "$v")"
    printf '     "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",\n'
    printf '     "comment": %s,\n' "$(quoted "source package $source${names:+; its copyright file names: $names}")"
    printf '     "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:deb/%s/%s@%s?arch=%s"}]}' \
        "$distribution" "$1" "$(printf '%s' "$v" | sed 's/+/%2B/g; s/:/%3A/g')" "$architecture"
}
relation() { printf ',\n    {"spdxElementId": "%s", "relationshipType": "%s", "relatedSpdxElement": "%s"}' "$1" "$2" "$3"; }

sums=$(sha256sum "$@")
cat <<END
{
  "spdxVersion": "SPDX-2.3",
  "dataLicense": "CC0-1.0",
  "SPDXID": "SPDXRef-DOCUMENT",
  "name": "aprkit-$version",
  "documentNamespace": "https://spdx.org/spdxdocs/aprkit-$version-$(sha256sum <<<"$sums $dynamic $static" | cut -c 1-32)",
  "creationInfo": {"created": "$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%dT%H:%M:%SZ)", "creators": ["Tool: aprkit-sbom.sh"]},
  "packages": [
    {"SPDXID": "SPDXRef-aprkit", "name": "aprkit", "versionInfo": "$version", "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
     "licenseConcluded": "MIT", "licenseDeclared": "MIT", "copyrightText": "Copyright (c) 2026 the aprkit authors",
     "comment": "commit ${commit:-unknown}"}$(for name in $(sort -u <<<"$dynamic"$'\n'"$static"); do package "$name"; done)
  ],
  "files": [$(while read -r sum file; do
    printf '%s\n    {"SPDXID": "SPDXRef-file-%s", "fileName": "./%s", "fileTypes": ["BINARY"], "licenseConcluded": "MIT", "copyrightText": "NOASSERTION",\n' "${comma-}" "$(id "${file##*/}")" "${file##*/}"
    printf '     "checksums": [{"algorithm": "SHA1", "checksumValue": "%s"}, {"algorithm": "SHA256", "checksumValue": "%s"}]}' "$(sha1sum "$file" | cut -d ' ' -f 1)" "$sum"
    comma=,
done <<<"$sums")
  ],
  "relationships": [
    {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-aprkit"}$(
    for file; do relation "SPDXRef-file-$(id "${file##*/}")" GENERATED_FROM SPDXRef-aprkit; done
    for name in $dynamic; do relation SPDXRef-aprkit DYNAMIC_LINK "SPDXRef-$(id "$name")"; done
    for name in $static; do relation SPDXRef-aprkit STATIC_LINK "SPDXRef-$(id "$name")"; done)
  ]
}
END
