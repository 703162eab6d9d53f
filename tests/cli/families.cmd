aprconv families | grep -E '^(family|mistral|mixtral|qwen3_5|deepseek_v32|glm_moe_dsa) ' | sed -E 's/  +/ | /g'
