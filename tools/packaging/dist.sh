#!/bin/sh
# dist.sh VERSION OUT.tar.gz - all files of this commit in an archive, and its SHA-256. Its bytes depend on the commit and SOURCE_DATE_EPOCH
# (the commit's date) alone: names are sorted, and owners, permissions and times are the same everywhere.
set -eu
version=$1 out=$2
git=$(git rev-parse --git-dir 2>/dev/null) && [ -e .git ] || { echo "make dist needs a git checkout: it archives a commit" >&2; exit 3; }
[ -z "$(git --git-dir="$git" status --porcelain)" ] || echo "dist: uncommitted changes are not in the archive" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive --prefix="aprkit-$version/" HEAD | tar -xf - -C "$work" # which writes the commit into tools/packaging/commit.sh
tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" -cf - -C "$work" "aprkit-$version" | gzip -n9 >"$work/archive"
mkdir -p "$(dirname "$out")"
cp "$work/archive" "$out"
(cd "$(dirname "$out")" && sha256sum "$(basename "$out")")
