aprquant -q --to q8_0 data/tiny-qwen2 m.apr >/dev/null
aprrun verify -q --json m.apr --ref data/tiny-qwen2 >v.json && grep -o '"same_model":[a-z]*' v.json && grep -o '"bounds_for":"[a-z0-9_]*"' v.json
