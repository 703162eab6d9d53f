aprconv --json frobnicate
