aprplan --gpu rtx4090 data/shapes/gpt-oss-20b.json
