aprconv show nowhere.gguf --json
