# A rule of --tensor that matches nothing is refused, one that another hides is said
aprquant --to q4_k_m --tensor ffn_dwn=q6_k data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf out.gguf 2>&1; echo $?
aprquant --to f16 --tensor 'down_proj=q8_0' --tensor 'mlp.down=q6_k' --tensor 'up_proj=q8_0' data/tiny-qwen2 out.gguf 2>&1 | head -n 1
aprquant --to f16 --tensor 'layers.0.*down_proj=q8_0' --tensor 'mlp.down=q6_k' data/tiny-qwen2 two.gguf 2>&1 | head -n 2
