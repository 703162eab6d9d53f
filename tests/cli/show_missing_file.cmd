aprconv show nowhere.gguf
