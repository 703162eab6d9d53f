/* hf_pipeline.h - what tokenizer.json does to a text before and behind the merges: normalizers, pre-tokenizers, post-processors.
 *
 * Each step is told in the words of apr_vocab, where it has them; the first that it has none for is named, and a tokenizer with
 * such a step is not run: a text tokenized almost right is worse than one refused. Strings belong to the JSON or are constants. */
#ifndef APR_FORMATS_HF_PIPELINE_H
#define APR_FORMATS_HF_PIPELINE_H

#include "formats/base/json.h"
#include "formats/model/vocab.h"

typedef struct apr_hf_pipeline {
    char strange[160];    /* what cannot be expressed ("the normalizer Lowercase"); "" : nothing */
    apr_vocab_kind model; /* BPE, WPM or UGM; NONE: another */
    bool byte_level;
    apr_normal normals[APR_MAX_NORMALS]; /* in the arena; none where the flags below say it all */
    size_t n_normals;
    char normal[64];     /* the first that the flags cannot say; "": none */
    const char *pattern; /* one isolated expression, or NULL: then the steps in splits */
    apr_split splits[APR_MAX_SPLITS];
    size_t n_splits;
    bool nfc, add_space_prefix, space_after_added, prefix_unless_space, escape_spaces;
    bool has_template;
    const char *first_token, *last_token; /* what the post-processor puts around a text */
} apr_hf_pipeline;

/* APR_E_MEMORY alone: what is strange is in the pipeline. */
apr_status apr_hf_pipeline_read(apr_hf_pipeline *pipeline, const cJSON *tokenizer, apr_arena *arena, apr_error *err);

#endif
