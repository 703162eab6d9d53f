# one page: curves by the number of sequences and by depth, the same tables as on the terminal, nothing from elsewhere
aprrun bench -q data/tiny-qwen2 --prompt 12,4 --tokens 3 --depth 8,0,4 --repeat 2 --batch 4,1,2 --html page.html >t || exit
count() { grep -oE "$1" page.html | wc -l; }
for tag in html head body main style div table tr td th p h1 h2 code span svg text; do
    [ "$(count "<$tag[ >]")" -gt 0 ] || echo "no $tag"
    [ "$(count "<$tag[ >]")" -eq "$(count "</$tag>")" ] || echo "$tag is left open"
done
count '<script>|<script src|src=|href="[^#]'
count '<svg'
grep -oE '<h2 [^<]*|<title>tiny[^<]*|finding">[pt][pg][0-9]+' page.html
# each chart once for wide and once for narrow screens; the rest looks at one of them, and not at the values in <details>
sed '/<svg class="narrow"/,/<.svg>/d; /<details>/,/<.details>/d' page.html >once.html && grep -c '<svg' once.html
# points stand in their order, whatever the order of the table; the numbers are those of the table
grep -oE '<title>(sequences at once|mean|95 %), [0-9]+' once.html | sed 's/.*>//'
grep -oE '<title>depth, [0-9]+: ' once.html | paste -sd' '
grep -oE '<tr>(<td[^>]*>[^<]*</td>)+' once.html | sed 's/<[^>]*>/ /g; s/ *$//; s/^ *//; s/  */ /g' >of_page
sed -E 's/^ *//; s/  +/ /g' t | grep -E '^([pt][pg])?[0-9]+ [0-9]' | sort >of_terminal
sort of_page | cmp - of_terminal && wc -l <of_page
# one depth and no numbers of sequences: the table alone; an older page is replaced, and nothing else
aprrun bench -q data/tiny-qwen2 --prompt 4 --tokens 2 --repeat 1 --html page.html --json | grep -o '"ok":true' && count '<svg|Throughput'
exec 2>&1
echo mine >mine.html && aprrun bench -q data/tiny-qwen2 --prompt 4 --tokens 2 --repeat 1 --html mine.html; echo $? && cat mine.html
# a run that fails leaves none
aprrun bench -q data/tiny-qwen2 --prompt 4 --tokens 2 --ctx 3 --html new.html; echo $?; ls -A | grep -E 'new|aprkit' || echo 'nothing is left'
