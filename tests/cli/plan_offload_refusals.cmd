for o in '--offload layer=3' '--offload layers=0' '--offload experts' '--gpus 0' '--gpus 17' '--gpus 0,1,0' '--gpus 16 --offload layers=70' '--host --gpus 2'; do
  aprplan --vram 24G $o data/shapes/llama-3.1-70b.json 2>&1
  echo "exit $?"
done
aprrun data/tiny-qwen2 --offload layers=1 -p x 2>&1
echo "exit $?"
# dense layers come first
aprplan --gpu rtx4090 --offload experts=3 data/shapes/deepseek-v3.json 2>&1
echo "exit $?"
