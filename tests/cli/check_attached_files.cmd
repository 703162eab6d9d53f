# what a loader would stumble over is found in a checkpoint and in an APR made from it
cp -r data/tiny-qwen2 ck
echo '{"a": 1,' >ck/preprocessor_config.json
printf 'a\0b' >ck/extra.jinja
aprconv check ck
echo $?
aprconv convert -q ck ck.apr >/dev/null
aprconv check ck.apr --json
