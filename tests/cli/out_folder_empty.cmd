# A folder that exists and is empty is filled; one that is not empty is not touched.
mkdir empty full && echo mine >full/note
aprconv convert data/tiny-qwen2 empty | head -n 1 && ls empty
aprconv convert data/tiny-qwen2 full 2>&1; ls full
aprconv convert data/tiny-qwen2 empty 2>&1 | sed 's/; try.*//'
aprconv diff data/tiny-qwen2 empty | tail -n 1
