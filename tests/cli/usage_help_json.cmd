# --help --json, help --json and VERB --help --json answer with the same kind of document: one object a line
aprconv --help --json | cmp - <<X
$(aprconv help --json)
X
aprconv help diff --json | grep -o '"verb":"diff".*"max_operands":2'
aprconv diff --json --help | grep -o '{"name":"tolerance"[^}]*}'
aprconv --version --json | sed -E 's/"(commit|compiler|cpu_level)":"[^"]+"/"\1":"X"/g; s/("cuda_library":)(true|false)/\1X/; s/"(cJSON|zstd|libdeflate|PCRE2|utf8proc)":"[0-9][^"]*"/"\1":"X"/g'
for tool in aprconv aprquant aprplan aprrun; do
    $tool help --json | grep -o '"tool":"[a-z]*"'
    $tool help --json | grep -o '"verb":[^,]*'
    $tool help --json | grep -o '"exit_codes":.*'
done
