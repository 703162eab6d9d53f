aprrun parity --layer 1 --op attend --positions 0,4100 --dump kept data/tiny-qwen2 >lines && grep -c '"op":"attend","layer":1,.*"passed":true' lines
ls kept
