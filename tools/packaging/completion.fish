# Completion of aprkit's tools for fish. The table that follows is made by aprdoc.

# ORG/NAME of what is in Hugging Face's cache.
function __aprkit_ids
    set -l hub $HOME/.cache/huggingface/hub
    set -q XDG_CACHE_HOME; and set hub $XDG_CACHE_HOME/huggingface/hub
    set -q HF_HOME; and set hub $HF_HOME/hub
    set -q HUGGINGFACE_HUB_CACHE; and set hub $HUGGINGFACE_HUB_CACHE
    set -q HF_HUB_CACHE; and set hub $HF_HUB_CACHE
    for folder in $hub/models--*--*
        string replace -r '.*/models--' '' $folder | string replace -- -- /
    end
end

# Files with one of these endings, and folders. No ending: all files.
function __aprkit_files
    set -l token (string replace -r '^~' $HOME -- (commandline -ct))
    for path in $token*
        if test -d $path
            echo $path/
        else if test (count $argv) -eq 0; or string match -qr -- '\.('(string join '|' $argv)')$' $path
            echo $path
        end
    end
end

function __aprkit_model
    __aprkit_files gguf apr json safetensors bin
    __aprkit_ids
end

function __aprkit_folders
    __aprkit_files ' '
end

# The verb that was typed, or "-".
function __aprkit_verb
    set -l words (commandline -opc)
    set -l verbs __aprkit_verbs_of_(path basename $words[1])
    for word in $words[2..-1]
        string match -q -- '-*' $word; and continue
        contains -- $word $$verbs; and echo $word; or echo -
        return
    end
    echo -
end

function __aprkit_is
    contains -- (__aprkit_verb) $argv
end

function __aprkit_is_first
    test (count (commandline -opc)) -eq 1
end

