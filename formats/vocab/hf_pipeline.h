/* hf_pipeline.h - reads tokenizer.json's steps before and after the merges: normalizers, pre-tokenizers, post-processors.
 *
 * Each step becomes fields of apr_vocab. The first step that apr_vocab cannot express is named, and a tokenizer with such a step is
 * refused: a text that is tokenized almost right is worse than an error. Strings belong to the JSON or are constants. */
#ifndef APR_FORMATS_HF_PIPELINE_H
#define APR_FORMATS_HF_PIPELINE_H

#include "formats/base/json.h"
#include "formats/vocab/vocab.h"

typedef struct apr_hf_pipeline {
    char unsupported[160]; /* the first unsupported step ("the normalizer Lowercase"); "": none */
    apr_vocab_kind model;  /* BPE, WPM or UGM; NONE: any other */
    bool byte_level;
    apr_normal normals[APR_MAX_NORMALS]; /* in the arena; none if the flags below are enough */
    size_t n_normals;
    char normal[64];     /* the first that the flags cannot express; "": none */
    const char *pattern; /* one isolated expression; NULL: see splits */
    apr_split splits[APR_MAX_SPLITS];
    size_t n_splits;
    bool nfc, add_space_prefix, space_after_added, prefix_unless_space, escape_spaces;
    bool has_template;
    const char *first_token, *last_token; /* what the post-processor puts around a text */
} apr_hf_pipeline;

/* Fails only with APR_E_MEMORY: unsupported steps are named in `unsupported`. */
apr_status apr_hf_pipeline_read(apr_hf_pipeline *pipeline, const cJSON *tokenizer, apr_arena *arena, apr_error *err);

#endif
