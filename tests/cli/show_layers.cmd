printf '{"model_type":"deepseek_v3","hidden_size":7168,"num_hidden_layers":61,"rope_scaling":{"type":"yarn","factor":40,"mscale":1.0,"mscale_all_dim":1.0,"original_max_position_embeddings":4096}}' >deepseek.json
printf '%s' '{"architectures":["Gemma4ForCausalLM"],"model_type":"gemma4_text","hidden_size":32,"num_hidden_layers":6,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"global_head_dim":24,"intermediate_size":56,"moe_intermediate_size":20,"num_experts":6,"top_k_experts":3,"enable_moe_block":true,"vocab_size":148,"sliding_window":8,"num_kv_shared_layers":3,"hidden_size_per_layer_input":8}' >gemma.json
printf '{"model_type":"cohere2","hidden_size":4096,"num_hidden_layers":8,"num_attention_heads":32}' >cohere.json
for name in deepseek gemma cohere; do aprconv show $name.json; done
aprconv show --json cohere.json
