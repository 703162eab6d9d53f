# name and version, then how it was built; "-V", "-v" alone and the verb say the same
aprconv --version >said && head -n 1 said && sed 1d said | awk '{print $1, (NF >= 2 ? "stated" : "missing")}'
for words in -V version -v; do aprconv $words | cmp - said; done
