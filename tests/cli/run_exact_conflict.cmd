for rounding in "--no-direct" "--fp8 on"; do
    aprrun --exact $rounding --device auto data/tiny-qwen2 -p x 2>&1
    echo "exit code $?"
done
