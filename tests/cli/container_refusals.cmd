# what stands where weights should be, and what asks to be executed
mkdir in && cp data/tiny-llama/config.json in
say() { "$@" 2>&1 >/dev/null; echo "exit $?"; }
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n' >in/model.safetensors
say aprconv show in
say aprconv convert in/model.safetensors out.apr
cp in/model.safetensors pointer.gguf && say aprrun pointer.gguf -p hello
printf '<!DOCTYPE html>\n<html><title>401</title></html>\n' >page.gguf && say aprconv check page.gguf
head -c 300000 data/tiny-llama/model.safetensors >in/model.safetensors && say aprconv show in
head -c 60000 data/containers/bin/pytorch_model.bin >cut.bin && say aprconv show cut.bin
say aprconv show data/containers/odd/module.pt
say aprconv show data/containers/odd/expanded.pt
printf '\200\002cos\nsystem\nU\004lsls\205R.' >evil.pkl && say aprconv show evil.pkl
mkdir bins && cp data/containers/bins/*.json data/containers/bins/*-00001-* bins && say aprconv show bins
say aprconv convert data/containers/odd/new.pt out.bin
ls out.apr out.bin 2>/dev/null || echo nothing was written
