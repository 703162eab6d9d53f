# what is wrong with a line stands in its answer, and the rest goes on
{
    echo '{"id":"good","prompt":"In the beginning","max_tokens":6}'
    echo
    echo 'no JSON'
    echo '[1]'
    printf '{"prompt":"\377"}\n'
    echo '{"id":"good","prompt":"again"}'
    echo '{"id":3}'
    echo '{"id":4,"prompt":"a","messages":[{"role":"user","content":"b"}]}'
    echo '{"id":5,"prompt":7}'
    echo '{"id":6,"prompt":"a","max_tokens":0}'
    echo '{"id":7,"prompt":"a","max_tokens":1.5}'
    echo '{"id":8,"prompt":"a","temperature":-1}'
    echo '{"id":9,"prompt":"a","temperature":NaN}'
    echo '{"id":10,"prompt":"a","top_p":2}'
    echo '{"id":11,"prompt":"a","stop":[""]}'
    echo '{"id":12,"prompt":"a","seed":1e300}'
    echo '{"id":13,"prompt":"a","frequency_penalty":"much"}'
    echo '{"id":[],"prompt":"a"}'
    echo '{"id":"x","custom_id":"y","prompt":"a"}'
    echo '{"id":14,"messages":[{"role":"user"}]}'
    echo '{"id":15,"prompt":""}'
    echo '{"id":16,"prompt":"a","prompt":"b"}'
    echo '{"id":17,"messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}'
    echo '{"id":18,"messages":[{"role":"user","content":null}]}'
    awk 'BEGIN {printf "{\"id\":\"long\",\"prompt\":\""; for (i = 0; i < 40; i++) printf "In the beginning God created the heaven and the earth. "; print "\",\"max_tokens\":3}"}'
    awk 'BEGIN {printf "{\"id\":\"ten megabytes\",\"prompt\":7,\"x\":\""; for (i = 0; i < 131072; i++) printf "%080d", i; print "\"}"}'
    printf '{"custom_id":"last","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"And God said","max_completion_tokens":4,"stop":"zz"}}'
} >in.jsonl
aprrun batch data/tiny-qwen2 in.jsonl -o out.jsonl --format aprkit --ctx 128 --sequences 3 -q 2>err; echo $?
cat err
sed 's/,"key":"[0-9a-f]*-[0-9a-f]*"}$//' out.jsonl | sort -t: -k2 -n
# and is said again by a run that goes on where another was ended
aprrun batch data/tiny-qwen2 in.jsonl -o out.jsonl --format aprkit --ctx 128 --sequences 3 -q --resume 2>&1; echo $?
