/* apr_meta_vocab.h - the vocabulary in an APR file's metadata. */
#ifndef APR_FORMATS_APR_META_VOCAB_H
#define APR_FORMATS_APR_META_VOCAB_H

#include "formats/base/json.h"
#include "formats/tensor/model.h"

#include <string.h>

/* True if a JSON string can hold it and read back equal. */
static inline bool apr_meta_is_text(apr_str s) { return apr_str_is_utf8(s) && (s.n_bytes == 0 || memchr(s.text, '\0', s.n_bytes) == NULL); }

/* The vocabulary: the standard keys, and the rules that they cannot express. */
void apr_meta_write_vocab(apr_json_text *out, const apr_vocab *vocab);
void apr_meta_write_vocab_rules(apr_json_text *out, const apr_vocab *vocab);
/* aprkit: the "aprkit" object of root, or NULL. */
apr_status apr_meta_read_vocab(apr_model *model, const cJSON *root, const cJSON *aprkit, apr_error *err);

static inline apr_status apr_meta_malformed(const apr_model *model, apr_error *err, const char *key)
{
    return apr_fail(err, APR_E_DAMAGED, "%s: metadata '%s' is malformed", model->path, key);
}

#endif
