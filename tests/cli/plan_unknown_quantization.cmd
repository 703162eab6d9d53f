sed 's/"mxfp4"/"exl9"/' data/shapes/gpt-oss-20b.json >config.json
aprplan --gpu rtx4090 config.json
