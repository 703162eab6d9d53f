aprconv diff a b c
