# the rotary scaling "dynamic" without an alpha is the plain one up to max_position_embeddings, and no more can be planned
dynamic='s/"rope_type": "default"/"rope_type": "dynamic", "factor": 6.0/'
make_family data/families/internlm3 plain && cp -r plain model && sed -i "$dynamic" model/config.json && grep -c '"dynamic"' model/config.json
for device in ref host; do
    aprrun golden --threads 1 --device $device model data/families/internlm3/golden.safetensors | grep -c ' pass '
done
aprconv convert model model.gguf | sed -n '/dynamic/s/^ *//p'
aprplan --host -c 512 model >/dev/null; echo "planned: $?"
aprplan --host -c 513 model; echo "exit code $?"
