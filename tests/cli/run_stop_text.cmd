# an answer ends before a text, which may span tokens; it is not shown
recite() { aprrun data/tiny-qwen2 --chat -p 'Recite Ge1:1' "$@"; }
recite --stop 'heaven and'
recite --stop 'n God crea' --stop never
recite --stop 'the earth.x'
recite --stop 'ning G' --json | tr ',' '\n' | grep -E '"(text|finish)"'
echo '{"messages":[{"role":"user","content":"Recite Ge1:1"}]}' | aprrun batch data/tiny-qwen2 - -o - -q --stop 'ning G' | sed 's/,"key".*//'
exec 2>&1
recite --stop ''; echo $?
recite $(seq -f '--stop=%g' 17); echo $?
recite --top-k -1; echo $?
recite --min-p 2; echo $?
recite --repeat-penalty 0; echo $?
