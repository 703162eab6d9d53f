# every family inside a larger model, each under one of the prefixes; under all of them with make check-all
TALLY= "$root/tests/wrappers.sh" --some "$(dirname "$(command -v aprrun)")" | grep -v 'larger models: '
