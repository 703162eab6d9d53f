#!/bin/sh
# install.sh install | install-strip | add | uninstall ROW... - copies what was built to where it is used, and removes exactly that again.
#
# A row is PLACE:MODE:FILE. PLACE is the name of a variable, a folder in it if there is one, and a new name if there is one: bindir,
# mandir/man1, datadir/zsh/site-functions=_aprkit. MODE is that of the file; "link" makes a symbolic link to FILE. Of 755
# and of shared libraries, install-strip leaves out the symbols. The environment has bindir, libdir ... and DESTDIR.
#
# The record, $libdir/aprkit/installed, lists the files and the folders that were made, without DESTDIR. Installing again removes what an
# older version had and this one has not. Without a record, uninstall removes the files of the rows and no folder.
set -eu
verb=$1
shift
for place in bindir libdir includedir datadir mandir docdir; do
    eval "folder=\$$place"
    case $folder in /*) ;; *) eval "$place=\$PWD/\$folder" ;; esac
done
record=$libdir/aprkit/installed
new=$(mktemp)
trap 'rm -f "$new"' EXIT

# Makes a folder, and notes each that was not there.
make_folder() {
    [ ! -d "$DESTDIR$1" ] || return 0
    case $1 in */*) make_folder "${1%/*}" ;; esac
    [ -d "$DESTDIR$1" ] || mkdir -p "$DESTDIR$1"
    echo "folder $1" >>"$new"
}

# Of a row: $mode, $file, and $target, the path without DESTDIR.
read_row() {
    local place="${1%%:*}" rest="${1#*:}" name folder
    mode=${rest%%:*} file=${rest#*:}
    name=${file##*/}
    case $place in *=*) name=${place#*=} place=${place%%=*} ;; esac
    folder=${place%%/*}
    eval "folder=\$$folder"
    case $place in */*) folder=$folder/${place#*/} ;; esac
    target=${folder%/}/$name
}

put() {
    local at="$DESTDIR$target"
    make_folder "${target%/*}"
    [ -n "${QUIET-}" ] || echo "  $target"
    rm -f "$at"
    case $mode in
    link) ln -s "$file" "$at" ;;
    *) install -m "$mode" "$file" "$at" ;;
    esac
    case $verb:$mode:$file in install-strip:755:* | install-strip:644:*.so.*) "${STRIP:-strip}" --strip-unneeded "$at" ;; esac
    echo "file $target" >>"$new"
}

# Files that only an older version had.
remove_older() {
    [ -f "$DESTDIR$record" ] || return 0
    [ "$verb" != add ] || cat "$DESTDIR$record" >>"$new" # which removes nothing
    grep '^file /' "$DESTDIR$record" | grep -vxF -f "$new" | while read -r _ old; do
        echo "  $old (no longer part of aprkit)"
        rm -f "$DESTDIR$old"
    done || :
    # the folders that it made are still ours
    grep '^folder' "$DESTDIR$record" | grep -vxF -f "$new" >>"$new" || :
}

remove_recorded() {
    local kind path
    while read -r kind path; do
        [ "$kind" != file ] || rm -f "$DESTDIR$path"
    done <"$new"
    # the deepest first; one that holds something else stays
    grep '^folder' "$new" | sort -r | while read -r _ path; do rmdir "$DESTDIR$path" 2>/dev/null || :; done
}

case $verb in
install | install-strip | add)
    for row; do
        read_row "$row"
        put
    done
    make_folder "$libdir/aprkit"
    echo "file $record" >>"$new"
    rm -f "$DESTDIR$bindir/libaprkit-cuda.so" "$DESTDIR$libdir/libaprkit-cuda.so" # where 0.1.0 had it: they would be found first
    remove_older
    sort -u "$new" | install -m 644 /dev/stdin "$DESTDIR$record"
    ;;
uninstall)
    if [ -f "$DESTDIR$record" ]; then
        cp "$DESTDIR$record" "$new"
    else
        for row; do
            read_row "$row"
            echo "file $target" >>"$new"
        done
    fi
    remove_recorded
    ;;
*)
    echo "install.sh: install, install-strip, add or uninstall" >&2
    exit 2
    ;;
esac
