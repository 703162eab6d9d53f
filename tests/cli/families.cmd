aprconv families | grep -E '^(family|mistral|mixtral|qwen3_5) ' | sed -E 's/  +/ | /g'
