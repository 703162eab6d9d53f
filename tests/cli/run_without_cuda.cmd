# a GPU that does not exist is refused; auto continues on the host
aprrun --device auto --gpu 1000 data/tiny-qwen2 -p 'In the beginning' -n 3
