aprrun --device ref data/tiny-qwen2 --chat -p 'Recite Ge1:1' --stats --json | grep -o '"backend": *"[a-z]*"\|In the beginning God created the heaven and the earth.'
