/* show.h - aprconv show: prints what is in a model file, as text (show_text.c) or as JSON (show_json.c). */
#ifndef APR_TOOLS_SHOW_H
#define APR_TOOLS_SHOW_H

#include "formats/base/pattern.h"
#include "formats/tensor/packing.h"
#include "tools/cli/cli.h"

typedef struct apr_show_options {
    bool tensors, metadata, parts;
    const char *filter; /* regular expression on tensor names, or NULL */
} apr_show_options;

extern const apr_command apr_show_command;

/* --- shared by text and JSON --- */

/* One line of the histogram. */
typedef struct apr_type_share {
    int64_t n_tensors, n_weights;
    uint64_t n_bytes;
} apr_type_share;

/* Packed matrices of one scheme (formats/tensor/packing.h). */
typedef struct apr_scheme_share {
    const char *scheme;
    apr_type_share share;
} apr_scheme_share;

enum { APR_MAX_SCHEMES = 16, APR_SCHEME_TEXT = 64 }; /* if there are more schemes, the last one stands for all others */

typedef struct apr_model_facts {
    uint64_t file_bytes, tensor_bytes;
    int64_t n_weights; /* without scales of FP8 weights; of packed matrices, the weights that they decode to */
    size_t n_reordered;
    apr_type_share types[APR_DTYPE_COUNT]; /* without the parts of packed matrices */
    apr_scheme_share schemes[APR_MAX_SCHEMES];
    size_t n_schemes, n_parts;
    char fp8_schemes[APR_MAX_SCHEMES][APR_SCHEME_TEXT]; /* names of FP8 schemes, which have no apr_packing */
    const apr_tensor **matrices; /* [n_tensors] the packed matrix that a tensor is part of, or NULL. The caller frees it */
    const apr_tensor **scaled;   /* [n_tensors] the FP8 weight that a tensor holds the scales of, or NULL. Freed with `matrices` */
} apr_model_facts;

/* "FP8 E4M3, blocks of 128 x 128" for an FP8 weight with a separate tensor of scales; NULL for other tensors. Returns text. */
const char *apr_fp8_scheme(const apr_tensor *tensor, char text[APR_SCHEME_TEXT]);
/* Fails only if memory runs out. */
apr_status apr_model_count(const apr_model *model, apr_model_facts *facts, apr_error *err);
double apr_bits_per_weight(uint64_t n_bytes, int64_t n_weights); /* 0 when there are none */
const char *apr_naming_name(apr_naming naming);
const char *apr_rope_name(apr_rope_kind kind);
const char *apr_layer_kind_name(uint8_t kind);
const char *apr_ffn_kind_name(uint8_t kind);
const char *apr_position_name(uint8_t has_none);
const char *apr_vocab_kind_name(apr_vocab_kind kind);

apr_status apr_show_text(const apr_model *model, const apr_show_options *options, const apr_pattern *filter, apr_error *err);
apr_status apr_show_json(const apr_model *model, const apr_show_options *options, const apr_pattern *filter, apr_json_text *out,
                         apr_error *err);
/* The stored bytes of all parts of a packed matrix. */
uint64_t apr_matrix_bytes(const apr_tensor *matrix);
/* Prints the adapter at that path, as text or JSON (show_adapter.c). */
apr_status apr_show_adapter(const char *path, const apr_show_options *options, const apr_pattern *filter, apr_answer *answer,
                            apr_error *err);

/* The filter has been tried on this name before and did not fail. */
static inline bool apr_is_shown(const apr_pattern *filter, const char *name)
{
    bool found = true;
    return filter == NULL || (apr_pattern_find(filter, name, &found, NULL) == APR_OK && found);
}

#endif
