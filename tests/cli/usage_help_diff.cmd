aprconv diff -h
