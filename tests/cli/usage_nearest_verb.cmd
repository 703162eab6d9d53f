for line in 'aprconv shwo x' 'aprconv covnert a b' 'aprconv quantize a b' 'aprrun verfy m' 'aprrun golen a b' 'aprrun show m' \
    'aprconv help chck' 'aprrun --vresion' 'aprconv --json frob'; do
    $line 2>&1 && echo "exit code 0"
    [ $? = 2 ] || echo "another exit code"
done
true
