make() { # FOLDER BYTES
    mkdir "$1" && echo '{"model_type":"zzz","hidden_size":4}' >"$1/config.json"
    json='{"w":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}       '
    { printf '\100\0\0\0\0\0\0\0'; printf '%-64s' "$json"; printf "$2"; } >"$1/model.safetensors"
}
make a '\200\077\000\000\000\100\100\100'
make b '\200\077\000\200\000\100\100\100'
aprconv diff a b | sed '1,3d'
aprconv diff --json a b | grep -o '"n_same_values":[0-9]*,"n_differing":[0-9]*'
aprconv diff --tolerance 0 a b | tail -n 2
