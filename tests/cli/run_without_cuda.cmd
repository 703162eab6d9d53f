# what cannot be a GPU: there is no such device; auto goes on on the host
aprrun --device auto --gpu 1000 data/tiny-qwen2 -p 'In the beginning' -n 3
