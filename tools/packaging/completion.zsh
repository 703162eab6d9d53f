#compdef aprconv aprquant aprplan aprrun
# Completion of aprkit's tools for zsh. The tables that follow are made by aprdoc.

# ORG/NAME of what is in Hugging Face's cache.
_aprkit_ids() {
    local hub=${HF_HUB_CACHE:-${HUGGINGFACE_HUB_CACHE:-${HF_HOME:+$HF_HOME/hub}}} folder
    local -a ids
    : ${hub:=${XDG_CACHE_HOME:-$HOME/.cache}/huggingface/hub}
    for folder in $hub/models--*--*(N/); do
        folder=${folder##*/models--}
        ids+=(${folder%%--*}/${folder#*--})
    done
    compadd -M 'r:|/=* r:|=*' -a ids
}

_aprkit_model() { _alternative 'files:model:_files -g "*.(gguf|apr|json|safetensors|bin)"' 'ids:id of the hub:_aprkit_ids'; }
_aprkit_types() { compadd -a _aprkit_type_names; }
_aprkit_gpus() { compadd -a _aprkit_gpu_names; }

_aprkit() {
    local tool=$service verb= word curcontext=$curcontext
    local -a verbs
    local -i at
    _aprkit_verbs $tool
    for word in ${words[2,CURRENT-1]}; do
        [[ $word != -* ]] || continue
        ((${verbs[(I)$word:*]} == 0)) || verb=$word
        break
    done
    if [[ -n $verb ]]; then # as if the verb were not there
        at=${words[(i)$verb]}
        words[at]=()
        ((CURRENT--))
    elif ((CURRENT == 2 && ${#verbs} > 0)) && [[ $PREFIX != -* ]]; then
        _describe -t verbs verb verbs
    fi
    _aprkit_command "$tool $verb"
}

