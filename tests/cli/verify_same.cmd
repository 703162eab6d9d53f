aprconv convert -q data/tiny-qwen2 m.apr >/dev/null
aprrun verify -q m.apr --ref data/tiny-qwen2 --html m.html >table || exit
cut -c 1-41 table
head -c 15 m.html
echo
grep -qiE 'src=|<script>|<link|https?:' m.html && echo 'the page needs something from elsewhere'
ls -A
