# Completion of aprkit's tools for bash, which needs nothing but bash. The tables that follow are made by aprdoc.

# ORG/NAME of what is in Hugging Face's cache.
_aprkit_ids() {
    local hub=${HF_HUB_CACHE:-${HUGGINGFACE_HUB_CACHE:-${HF_HOME:+$HF_HOME/hub}}} folder
    : "${hub:=${XDG_CACHE_HOME:-$HOME/.cache}/huggingface/hub}"
    for folder in "$hub"/models--*--*; do
        [[ -d $folder ]] || continue
        folder=${folder##*/models--}
        printf '%s\n' "${folder%%--*}/${folder#*--}"
    done
}

# Files with one of the endings "gguf|apr", and folders. No ending: all files.
_aprkit_files() {
    local path
    compopt -o filenames 2>/dev/null
    while IFS= read -r path; do
        if [[ -z $1 || -d $path || $path =~ \.($1)$ ]]; then COMPREPLY+=("$path"); fi
    done < <(compgen -f -- "$cur")
}

_aprkit_words() {
    local word
    while IFS= read -r word; do COMPREPLY+=("$prefix$word"); done < <(compgen -W "$1" -- "$cur")
}

# @none, @model, @types, @gpus, @dir, @files, @files:gguf|apr, or the words themselves, with | between them.
_aprkit_offer() {
    local path
    case $1 in
    @none | '') ;;
    @types) _aprkit_words "$_aprkit_types" ;;
    @gpus) _aprkit_words "$_aprkit_gpus" ;;
    @dir)
        compopt -o filenames 2>/dev/null
        while IFS= read -r path; do COMPREPLY+=("$path"); done < <(compgen -d -- "$cur")
        ;;
    @model)
        _aprkit_files 'gguf|apr|json|safetensors|bin'
        _aprkit_words "$(_aprkit_ids)"
        ;;
    @files) _aprkit_files '' ;;
    @files:*) _aprkit_files "${1#@files:}" ;;
    *) _aprkit_words "${1//|/ }" ;;
    esac
}

# The entry of an option in $options that has a value: NAME=OFFER, or NAME?OFFER if the value may be left out.
_aprkit_entry() {
    local entry
    for entry in $options; do
        if [[ $entry == *[=?]* && ${entry%%[=?]*} == "$1" ]]; then
            printf '%s' "${entry#"$1"}"
            return
        fi
    done
}

# What the operand after N others is offered, from $operands. "..." repeats the one before it.
_aprkit_operand() {
    local n=$1 kind=@none word
    for word in $operands; do
        if [[ $word == ... ]]; then break; fi
        kind=@none
        if ((n-- == 0)); then
            kind=$word
            break
        fi
        [[ $operands != *"$word ..." ]] || kind=$word
    done
    _aprkit_offer "$kind"
}

_aprkit() {
    local cur prefix= words=() word i n=0 before= verb= verbs options operands only_operands=
    COMPREPLY=()
    for ((i = 1; i <= COMP_CWORD; i++)); do # bash splits --name=value into three words
        word=${COMP_WORDS[i]}
        if ((${#words[@]} > 0)) && [[ ($word == = && ${words[-1]} == --*) || ${words[-1]} == --*= ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    cur=${words[-1]}
    unset 'words[-1]'

    _aprkit_verbs "${1##*/}"
    for word in "${words[@]}"; do
        [[ $word != -* ]] || continue
        [[ " $verbs " != *" $word "* ]] || verb=$word
        break
    done
    _aprkit_command "${1##*/} $verb"
    options+=$_aprkit_common
    for word in "${words[@]}"; do
        if [[ -n $before ]]; then
            before=
        elif [[ $word == -- ]]; then
            only_operands=1
        elif [[ -z $only_operands && $word == -?* ]]; then
            [[ $(_aprkit_entry "$word") != =* ]] || before=$word
        else
            ((++n))
        fi
    done
    [[ -z $verb ]] || ((--n))

    if [[ -z $before && -z $only_operands && $cur == --*=* ]]; then
        before=${cur%%=*}
        [[ ${COMP_WORDS[COMP_CWORD]} != "$cur" ]] || prefix=$before=
        cur=${cur#*=}
    fi
    if [[ -n $before ]]; then
        word=$(_aprkit_entry "$before")
        _aprkit_offer "${word#[=?]}"
    elif [[ $cur == -* && -z $only_operands ]]; then
        _aprkit_words "$(for word in $options; do printf '%s ' "${word%%[=?]*}"; done)"
    else
        ((${#words[@]} > 0)) || _aprkit_words "$verbs"
        [[ $verb == help ]] || _aprkit_operand "$n"
    fi
}

