cp -rL data/tiny-qwen2 m && chmod -R u+w m
sed -i 's/"rope_theta": 1000000.0/"rope_theta": 2000000.0/' m/config.json
cmp -s m/config.json data/tiny-qwen2/config.json && echo 'nothing was changed'
aprquant -q --to mxfp4 m m.apr >/dev/null 2>&1
aprrun verify -q --no-parity m.apr --ref data/tiny-qwen2 >table
code=$?
grep FAIL table | head -n 1
exit $code
