aprconv
