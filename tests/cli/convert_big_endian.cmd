# a GGUF of a big-endian machine (made by gguf 0.19.0) goes through APR and comes back as it was; converted at once it is little-endian
quiet() { "$@" >/dev/null || echo "$*: exit $?"; }
cp data/gguf/big-endian.gguf be.gguf
quiet aprconv convert -q be.gguf be.apr
quiet aprconv convert -q be.apr back.gguf && cmp be.gguf back.gguf && echo 'byte for byte'
aprconv show --no-tensors --no-metadata be.apr | grep -i origin
aprconv show --json be.gguf | grep -oE '"gguf_version":[0-9],"big_endian":[a-z]*'
quiet aprconv convert -q be.gguf le.gguf
head -c 8 le.gguf | od -An -tx1
aprconv diff be.gguf le.gguf | tail -n 1
# with other types, or in several runs, it is little-endian, too
quiet aprquant -q -t f16 be.apr f16.gguf
head -c 8 f16.gguf | od -An -tx1
quiet aprconv convert -q --resume be.apr runs.gguf
cmp le.gguf runs.gguf
# with bytes after it, and in pieces that end within numbers
head -c 4999 /dev/zero | tr '\0' x >>be.gguf
quiet aprconv convert -q -f be.gguf be.apr
quiet aprconv convert -q -f be.apr back.gguf && cmp be.gguf back.gguf && echo 'byte for byte'
