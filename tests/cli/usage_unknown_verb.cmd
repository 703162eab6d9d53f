aprconv frobnicate x
