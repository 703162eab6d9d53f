aprconv --help | head -n 1
