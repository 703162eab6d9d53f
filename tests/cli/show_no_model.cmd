echo hello there >letter.txt; aprconv show letter.txt
