aprconv diff a b --tolerance 1,5
