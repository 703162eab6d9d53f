# seconds of the processor; sanitized programs take several times as long
case $(command -v aprplan) in *asan* | *tsan*) ;; *) ulimit -t 6 ;; esac
for m in qwen3.5-35b-a3b gpt-oss-20b; do
  # 10,000 layers, whatever was said of each; the advice is asked for as well
  tr '\n' ' ' <data/shapes/$m.json | sed 's/"layer_types": \[[^]]*\],//; s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 10000/' >$m.json
  timeout 110 aprplan --vram 24G $m.json | sed -n '/does not fit/,$p'
done
