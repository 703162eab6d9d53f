#!/bin/sh
# interface.sh - a hash of what the tools and the CUDA library must read alike, as the define APR_CUDA_INTERFACE (kernels/cuda/api.h).
#
# It hashes the text of the headers below and of all headers of ours that they include, each once. No compiler is asked, so that all
# compilers and all flags give the same number. Comments are left out, and white space that separates no words.
# --text prints what is hashed.
set -e
cd "$(dirname "$0")/../.."
LC_ALL=C
export LC_ALL
# what a call passes, what both sides count of a workspace, and how weights lie in memory
headers="kernels/cuda/*.h formats/number/blocks.h formats/model/regular.h"

text=$(awk '
    # A file without comments and continued lines.
    function read(path,   line, rest, text, token, status) {
        while ((status = getline line <path) > 0) rest = rest line "\n"
        if (status < 0) {print "interface.sh: cannot read " path >"/dev/stderr"; failed = 1; exit 1}
        close(path)
        gsub(/\\\n/, " ", rest)
        while (match(rest, /"([^"\\\n]|\\.)*"|\047([^\047\\\n]|\\.)*\047|\/\*|\/\//)) {
            token = substr(rest, RSTART, RLENGTH)
            text = text substr(rest, 1, RSTART - 1)
            rest = substr(rest, RSTART + RLENGTH)
            if (token == "/*") {text = text " "; rest = substr(rest, index(rest, "*/") + 2)}
            else if (token == "//") rest = substr(rest, index(rest, "\n"))
            else text = text token
        }
        return text rest
    }
    # Code without white space beside punctuation; a directive keeps its line.
    function say(code) {
        gsub(/[ \t\n]+/, " ", code)
        for (i = 1; i <= n_marks; i++) gsub(" *[" marks[i] "] *", marks[i] == "\\^" ? "^" : marks[i] == "&" ? "\\&" : marks[i], code)
        gsub(/^ | $/, "", code)
        if (code != "") print code
    }
    function emit(path,   lines, n, i_line, line, code) {
        if (path in seen) return
        seen[path] = 1
        n = split(read(path), lines, "\n")
        for (i_line = 1; i_line <= n; i_line++) {
            line = lines[i_line]
            if (line !~ /^[ \t]*#/) {code = code " " line; continue}
            say(code); code = ""
            if (line ~ /include[ \t]*"/) {sub(/^[^"]*"/, "", line); sub(/".*/, "", line); emit(line)}
            else {gsub(/[ \t]+/, " ", line); sub(/^ ?# ?/, "#", line); sub(/ $/, "", line); print line}
        }
        say(code)
    }
    BEGIN {
        n_marks = split("( ) { } , ; : ? = < > + - * / % | & ^ ! ~ .", marks, " ")
        for (i = 1; i <= n_marks; i++) if (marks[i] == "^") marks[i] = "\\^"
        for (f = 1; f < ARGC; f++) emit(ARGV[f])
        exit failed
    }' $headers)
[ "$1" != --text ] || { printf '%s\n' "$text"; exit; }
hash=$(printf '%s\n' "$text" | sha256sum)
printf '#define APR_CUDA_INTERFACE 0x%.8su\n' "$hash"
