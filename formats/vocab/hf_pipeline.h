/* hf_pipeline.h - the steps of a tokenizer.json before and after its model: normalizer, pre-tokenizer, post-processor. */
#ifndef APR_FORMATS_HF_PIPELINE_H
#define APR_FORMATS_HF_PIPELINE_H

#include "formats/base/json.h"
#include "formats/vocab/vocab.h"

#include <string.h>

/* The steps before and after the merges. Strings belong to the JSON or are constants. */
typedef struct apr_hf_pipeline {
    char unsupported[160]; /* the first unsupported step ("the normalizer Lowercase"); "": none */
    apr_vocab_kind model;  /* BPE, WPM or UGM; NONE: any other */
    bool byte_level;
    apr_normal normals[APR_MAX_NORMALS]; /* in the arena; none if the flags below are enough */
    size_t n_normals;
    char normal[64];     /* the first normalizer that the flags cannot express; "": none */
    const char *pattern; /* one isolated expression; NULL: see splits */
    apr_split splits[APR_MAX_SPLITS];
    size_t n_splits;
    bool nfc, add_space_prefix, space_after_added, prefix_unless_space, escape_spaces;
    bool has_template;
    const char *first_token, *last_token; /* what the post-processor puts around a text */
} apr_hf_pipeline;

/* Fails only with APR_E_MEMORY: unsupported steps are named in `unsupported`. */
apr_status apr_hf_pipeline_read(apr_hf_pipeline *p, const cJSON *tokenizer, apr_arena *arena, apr_error *err);

/* The bool under the key; `otherwise` if there is none. */
static inline bool apr_hf_flag(const cJSON *object, const char *key, bool otherwise)
{
    apr_json_get_bool(object, key, &otherwise);
    return otherwise;
}

static inline bool apr_hf_is(const cJSON *object, const char *key, const char *text)
{
    const char *const found = apr_json_get_string(object, key);
    return found != NULL && strcmp(found, text) == 0;
}

#endif
