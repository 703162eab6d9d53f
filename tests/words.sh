#!/bin/sh
# words.sh - fails on retired words: those that the field does not use, or uses for something else. They come back easily, because old
# commits are full of them. A line of the table is a Perl expression, a tab, and what to write instead.
# File formats keep their words: JSON keys, APR metadata, journals, options. So strings of one word in quotes are not looked at.
cd "$(dirname "$0")/.." || exit 2
table='\babreast\b|\babreast_	small GEMM
\bmisfits?\b|_misfits?\b	out of range
\brelaid|\brelay(s|ed|ing)?\b	repack, repacked, canonical layout
\bnobody\b|\bNOBODY\b	"no thread", "no program", "not known"
\bwhoever\b	"the caller"
\bnought\b	zero
\b(?<!there )(?<!There )(?<!what )(is|are) no (?!longer\b|more\b|less\b|other\b)[a-z]+	"is not a ..."
(?<!aprkit\.)(?<!\\")\bdialects?\b	naming
\bstand-ins?\b	placeholder
\bapr_(flow|ground|card|made|relay|regular|way|purpose|feeds?|halves|halved|planes)_?\b	see the glossary of CONTRIBUTING.md
\bk_flow|\bflow_(args|run|kernel|dot)\b	decode_gemv
(?:tensor|\bt|merged|part)->made\b|->(?:maker|feeds?|fed|ending|twin)\b|\bn_feeds\b	composed, custom_encoder, inputs, readers, suffix, duplicate_id
\bbeside\b	"next to", "in addition to"
\bbehind one another\b|\bas it were\b	plain words
\b(lies|lie) (behind|beside|there)\b	"is after", "is next to", "is in"'
found=$(mktemp) || exit 2
trap 'rm -f "$found"' EXIT
printf '%s\n' "$table" | while IFS='	' read -r expression instead; do
    git grep -nIP -e "$expression" -- '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.sh' '*.md' '*.cmd' '*.out' '*.err' '*.py' Makefile .ci \
        ':!tests/data' ':!tests/words.sh' |
        perl -ne 'BEGIN {$e = shift; $i = shift} ($p, $l) = /^([^:]*:\d+):(.*)/s or next; $l =~ s/"\w+"//g; print "$p: ", $l =~ s/^\s+|\s+$//gr, "   <- $i\n" if $l =~ /$e/' "$expression" "$instead"
done >"$found"
[ ! -s "$found" ] && exit 0
cat "$found"
echo "words: $(wc -l <"$found") lines with retired words" >&2
exit 1
