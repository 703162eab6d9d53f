/* show.h - aprconv show: what is in a model file, for a person (show.c) or as JSON (show_json.c). */
#ifndef APR_TOOLS_SHOW_H
#define APR_TOOLS_SHOW_H

#include "formats/model/model.h"
#include "tools/cli/cli.h"

#include <regex.h>

typedef struct apr_show_options {
    bool tensors, metadata;
    const char *filter; /* extended regular expression on tensor names, or NULL */
} apr_show_options;

extern const apr_command apr_show_command;

/* --- what both forms are made from --- */

/* One line of the histogram. */
typedef struct apr_type_share {
    int64_t n_tensors, n_weights;
    uint64_t n_bytes;
} apr_type_share;

typedef struct apr_model_facts {
    uint64_t file_bytes, tensor_bytes;
    int64_t n_weights; /* scales of FP8 weights are not weights, but their bytes count */
    size_t n_reordered;
    apr_type_share types[APR_DTYPE_COUNT];
} apr_model_facts;

void apr_model_count(const apr_model *model, apr_model_facts *facts);
double apr_bits_per_weight(uint64_t n_bytes, int64_t n_weights); /* 0 when there are none */
const char *apr_dialect_name(apr_dialect dialect);
const char *apr_rope_name(apr_rope_kind kind);
const char *apr_layer_kind_name(uint8_t kind);
const char *apr_ffn_kind_name(uint8_t kind);
const char *apr_position_name(uint8_t has_none);
const char *apr_vocab_kind_name(apr_vocab_kind kind);

apr_status apr_show_text(const apr_model *model, const apr_show_options *options, const regex_t *filter, apr_error *err);
void apr_show_json(const apr_model *model, const apr_show_options *options, const regex_t *filter, apr_json_text *out);
/* The same for an adapter at that path, in one form or the other (show_adapter.c). */
apr_status apr_show_adapter(const char *path, const apr_show_options *options, const regex_t *filter, apr_answer *answer, apr_error *err);

static inline bool apr_is_shown(const regex_t *filter, const apr_tensor *tensor)
{
    return filter == NULL || regexec(filter, tensor->name, 0, NULL, 0) == 0;
}

#endif
