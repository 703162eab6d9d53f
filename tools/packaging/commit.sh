#!/bin/sh
# commit.sh - prints the commit of these files: git's, or, in an archive made by git archive, what git wrote into this file then.
cd "$(dirname "$0")/../.." || exit
archived='$Format:%H$'
case $archived in
'$'*) [ ! -e .git ] || git describe --always --dirty --abbrev=12 2>/dev/null ;;
*) echo "$archived" | cut -c 1-12 ;;
esac
