#!/bin/sh
# closure.sh [-c] FILE... - prints the text that FILEs depend on: each of them and every file of this project that it includes, once,
# without comments and blank space. So its hash changes when their code does, and not when a comment does.
#   -c   for every header also the .c files of its folder and of folders in it, with what these include: what a program that includes it may call
cd "$(dirname "$0")/.." || exit 2
LC_ALL=C
export LC_ALL
sources=0
[ "$1" != -c ] || { sources=1; shift; }
[ $sources -eq 0 ] || objects=$(find formats kernels quant convert runtime tools -name '*.c' | sort)
objects=$objects awk '
    # A line without its comments. `inside` says whether it begins in one; strings and characters are passed over as they are.
    function code_of(line,  out, mark) {
        out = ""
        for (;;) {
            if (inside) {
                if (!(mark = index(line, "*/"))) return out
                line = substr(line, mark + 2)
                inside = 0
                out = out " "
            }
            if (!match(line, /"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047|\/\*|\/\//)) return out line
            mark = substr(line, RSTART, 2)
            if (mark == "//") return out substr(line, 1, RSTART - 1)
            if (mark == "/*") {
                out = out substr(line, 1, RSTART - 1)
                line = substr(line, RSTART + 2)
                inside = 1
            } else {
                out = out substr(line, 1, RSTART + RLENGTH - 1)
                line = substr(line, RSTART + RLENGTH)
            }
        }
    }
    function add(path) {
        if (!(path in known)) {known[path] = 1; queue[++n_queued] = path}
    }
    function read(path,  line, is_there, name, names, n, i) {
        inside = 0
        while ((getline line < path) > 0) {
            if (!is_there++) print "== " path
            line = code_of(line)
            gsub(/[ \t]+/, " ", line)
            sub(/^ /, "", line)
            sub(/ $/, "", line)
            if (line == "") continue
            print line
            if (line ~ /^# ?include "/) {
                name = line
                sub(/^[^"]*"/, "", name)
                sub(/".*/, "", name)
                add(name)
                sub(/\/[^\/]*$/, "", name)
                n = split(in_folder[name], names, " ")
                for (i = 1; i <= n; i++) add(names[i])
                in_folder[name] = ""
            }
        }
        if (is_there) close(path)
        else {
            print "closure.sh: there is no " path >"/dev/stderr"
            missing = 1
        }
    }
    BEGIN {
        n = split(ENVIRON["objects"], paths, "\n")
        for (i = 1; i <= n; i++) {
            folder = paths[i]
            while (sub(/\/[^\/]*$/, "", folder)) in_folder[folder] = in_folder[folder] " " paths[i]
        }
        for (i = 1; i < ARGC; i++) add(ARGV[i])
        for (next_one = 1; next_one <= n_queued; next_one++) read(queue[next_one])
        exit missing
    }' "$@"
