# what a line with a slash does; several lines; files
say() { printf '%s\n' "$@"; }
chat() { aprrun chat data/tiny-qwen2 --ctx 256 "$@" 2>&1; }
say 'Recite Ge1:1' /stats '/save a.json' /retry '/save b.json' /undo /undo /retry '/save c.json' | chat | sed 's/([0-9.]*\/s)/(...)/g'
cmp a.json b.json && echo retried the same
say /retry '/save b.json' | chat --load a.json; cmp a.json b.json && echo and after loading
say '"""' 'one' 'two"""' '"""three"""' 'four\' 'five' ' /six' '/save d.json' | chat -n 1 >/dev/null; sed 's/"role"/\n&/g' d.json | grep user
say '/system Be kind.' /system 'Recite Ge1:1' '/save e.json' /clear '/system ""' '/load e.json' /system /stats /exit never | chat -n 2 | sed 's/([0-9.]*\/s)/(...)/g'
say '/set temp 0.5' '/set top_k=7' '/set n 3' '/set --min-p 0.25' /set '/set temp' '/set temp x' '/set seed 1.5' '/set stop a' '/set nothing 1' | chat --stop END; echo $?
say '/save' '/load' '/load missing' '/load d.json/x' /nothing | chat; echo $?
echo '{"a":1}' >other.json; say hi '/save other.json' '/load other.json' | chat -n 1; echo $?; cat other.json
say '/help' | chat | wc -l
# drawn answers: a retry is another one, and the first question's again after that
say 'And the' /retry '/save 1.json' | chat --temp 1.5 --top-k 50 --seed 2 --json -n 12 | sed 's/.*"text":"\([^"]*\)".*/\1/' | sort | uniq -d | wc -l
# the context is full: nothing is dropped, and the conversation goes on
say 'Recite Ge1:1' "$(seq 60 | tr '\n' ' ')" '/save f.json' | aprrun chat data/tiny-qwen2 --ctx 64 2>&1; echo $?; cat f.json
say 'Recite Ge1:1' "$(seq 60 | tr '\n' ' ')" | aprrun chat data/tiny-qwen2 --ctx 64 --json 2>/dev/null | cut -c 1-70; echo
