aprconv families llama
