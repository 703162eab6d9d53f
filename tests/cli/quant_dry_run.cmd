aprquant --to q4_k_m --dry-run data/tiny-qwen2 out.apr && ls
