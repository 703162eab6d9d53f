aprconv --version
