aprplan --gpu h200 --dtype q4_k_m --ctx 163840 data/shapes/deepseek-v3.2.json | grep latent
aprplan --gpu h200 --gpus 8 --json data/shapes/deepseek-v3.2.json | grep -c '"lacks"'
# layers that share the index of an earlier layer have no keys of an index: as in GLM-5.2, 21 of 78 layers have their own
sed 's/"index_topk": 2048/&, "index_topk_freq": 4, "index_skip_topk_offset": 3/' data/shapes/glm-5.json >shared.json
for config in data/shapes/glm-5.json shared.json; do
    aprplan --host --ctx 1024 --json $config | grep -o '"id":"kv.latent","bytes":[0-9]*'
done
# there must be one to share
make_family data/families/glm_moe_dsa glm && sed -i '0,/"full"/s//"shared"/' glm/config.json && aprrun golden --device ref glm data/families/glm_moe_dsa/golden.safetensors 2>&1; echo $?
# an index that a GPU's kernel cannot hold
sed 's/"index_topk": 2048/"index_topk": 4096/' data/shapes/deepseek-v3.2.json >large.json && aprplan --gpu h200 large.json 2>&1; echo $?; aprplan --host --json large.json | grep -c '"kv.latent"'
