aprconv show data/tiny-llama >shown && aprconv info data/tiny-llama | cmp - shown && aprconv help info | head -n 1
