aprconv st2apr data/tiny-qwen2 m.apr >/dev/null; head -c 200000 m.apr >cut.apr; aprrun cut.apr -p a --json
