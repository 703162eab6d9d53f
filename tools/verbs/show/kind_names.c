/* kind_names.c - how show and diff name the kinds of things in a model. */
#include "tools/verbs/show/kind_names.h"

const char *apr_rope_name(apr_rope_kind kind) { return kind == APR_ROPE_PLAIN ? "none" : apr_rope_names[kind]; }

const char *apr_layer_kind_name(uint8_t kind)
{
    static const char *const names[] = {
        [APR_LAYER_FULL] = "full",   [APR_LAYER_SLIDING] = "sliding",  [APR_LAYER_LINEAR] = "linear", [APR_LAYER_CHUNKED] = "chunked",
        [APR_LAYER_MAMBA] = "mamba", [APR_LAYER_CONV] = "convolution", [APR_LAYER_NONE] = "none"};
    return names[kind];
}

const char *apr_vocab_kind_name(apr_vocab_kind kind)
{
    static const char *const names[] = {[APR_VOCAB_NONE] = "none",
                                        [APR_VOCAB_BPE] = "byte-level BPE",
                                        [APR_VOCAB_SPM] = "SentencePiece BPE",
                                        [APR_VOCAB_WPM] = "WordPiece",
                                        [APR_VOCAB_UGM] = "Unigram"};
    return names[kind];
}
