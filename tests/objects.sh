#!/bin/sh
# objects.sh [--list] BUILD - what the objects of a build say about its files: circles of files that call each other, and names that a
# file exports for one other file of its folder. Includes show neither, because several files share a header. --list prints the names.
# Fails when there is a circle that is not in the list below, or when there are more names for one sibling than `most`.
#
# A circle is allowed where it is real recursion or a registry. PATTERN: REASON; each file of the circle matches the pattern.
circles='
'
most=249
list=
[ "$1" != --list ] || { list=1; shift; }
build=${1:?objects.sh [--list] BUILD}
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$build" || exit 2
sources=$(cd "$root" && { [ -e .git ] && git ls-files '*.c' || find . -path ./build -prune -o -name '*.c' -print | sed 's|^\./||'; } | sed 's/\.c$//' | tr '\n' ' ') # objects of sources that have gone are not looked at
find . -name '*.o' ! -path './tests/*' ! -path './emulated/*' ! -path './cuda/*' -exec nm -A {} + |
    awk -v list="$list" -v most="$most" -v circles="$circles" -v sources="$sources" '
    function base(path) {sub(/.*\//, "", path); return path}
    function folder(path) {sub(/\/[^\/]*$/, "", path); return path}
    # Tarjan: strongly connected files
    function visit(v,    i, n, w, to, members, m) {
        index_of[v] = low[v] = ++n_visited; stack[++height] = v; is_on[v] = 1
        n = split(edges[v], to, " ")
        for (i = 1; i <= n; i++) {
            w = to[i]
            if (!(w in index_of)) {visit(w); if (low[w] < low[v]) low[v] = low[w]}
            else if (is_on[w] && index_of[w] < low[v]) low[v] = index_of[w]
        }
        if (low[v] != index_of[v]) return
        members = ""; m = 0
        do {w = stack[height--]; is_on[w] = 0; members = w " " members; m++} while (w != v)
        if (m > 1) circle[++n_circles] = members
    }
    BEGIN {n = split(sources, names, " "); for (i = 1; i <= n; i++) is_source[names[i]] = 1}
    {
        file = $1; sub(/:.*/, "", file); sub(/^\.\//, "", file); sub(/\.o$/, "", file); sub(/\.c$/, "", file)
        source = file; sub(/\.[a-z0-9_]+$/, "", source) # a level of CPU
        if (!(file in is_source) && !(source in is_source)) next
        if ($(NF - 1) == "U") {uses[file] = uses[file] " " $NF}
        else if ($(NF - 1) ~ /^[TDBRC]$/) {where[$NF] = file; if ($NF ~ /^apr_/) n_exported++}
    }
    END {
        for (file in uses) {
            n = split(uses[file], names, " ")
            for (i = 1; i <= n; i++) {
                if (!(names[i] in where)) continue
                to = where[names[i]]
                if (to == file) continue
                n_users[names[i]]++; user[names[i]] = file
                if (!((file, to) in seen)) {seen[file, to] = 1; edges[file] = edges[file] " " to}
            }
        }
        for (file in uses) if (!(file in index_of)) visit(file)
        for (name in where) {
            if (name ~ /^apr_/ && n_users[name] == 1 && folder(user[name]) == folder(where[name])) {
                n_one++; in_folder[folder(where[name])]++
                if (list) print "  " name ": " where[name] ", for " base(user[name])
            }
        }
        printf "%d names exported, %d of them for one sibling:", n_exported, n_one
        for (f in in_folder) printf " %s %d,", f, in_folder[f]
        print ""
        n = split(circles, known, "\n")
        for (c = 1; c <= n_circles; c++) {
            is_known = 0
            for (i = 1; i <= n; i++) {
                split(known[i], part, ": ")
                if (part[1] == "") continue
                m = split(circle[c], members, " "); fits = 1
                for (j = 1; j <= m; j++) if (members[j] !~ part[1]) fits = 0
                if (fits) {is_known = 1; why = part[2]}
            }
            print (is_known ? "circle (" why "): " : "CIRCLE: ") circle[c]
            if (!is_known) n_bad++
        }
        printf "%d circles, %d of them not allowed\n", n_circles, n_bad
        exit n_bad > 0 || n_one > most
    }'
