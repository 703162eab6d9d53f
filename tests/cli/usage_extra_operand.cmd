aprconv show a b
