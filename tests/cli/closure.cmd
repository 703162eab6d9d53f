# What a program depends on (kernels/closure.sh), by which CI knows what it may leave out: code counts, comments and blank space do not.
root=$(dirname "$(dirname "$(readlink -f data)")")
mkdir -p kernels formats/a/inside formats/b tools convert quant runtime
cp "$root/kernels/closure.sh" kernels/
echo '#include "formats/a/a.h" /* first
   and */ int x; // last' >kernels/x.cu
echo '#include "formats/b/b.h"
#define TEXT "/* no comment */" // but this' >formats/a/a.h
echo 'int b;' >formats/b/b.h
echo 'int a;' >formats/a/a.c
echo 'int inside;' >formats/a/inside/table.c
echo 'int other;' >tools/other.c
kernels/closure.sh kernels/x.cu
echo '-- and what it may call'
kernels/closure.sh -c kernels/x.cu | grep '^=='
key() { kernels/closure.sh "$@" kernels/x.cu | cksum; }
before=$(key) before_c=$(key -c)
says() { [ "$(key)" = "$before" ] && echo "$1: same" || echo "$1: other"; [ "$(key -c)" = "$before_c" ] && echo "  with what it calls: same" || echo "  with what it calls: other"; }
echo 'int   b ; /* more */' | sed 's/ ;/;/' >formats/b/b.h && says 'a comment'
echo 'int inside2;' >formats/a/inside/table.c && says 'a table in a folder below'
echo 'int b2;' >formats/b/b.h && says 'a header of a header'
rm formats/b/b.h
kernels/closure.sh kernels/x.cu 2>&1 >/dev/null || echo "exit code $?"
