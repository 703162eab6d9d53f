aprconv families --json | grep -o '{"family":"qwen3_5",[^}]*},[^}]*}[^}]*}'
aprconv families --json | grep -o '{"family":"mixtral",[^}]*}[^}]*}'
