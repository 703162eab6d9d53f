/* quant_sums.h - sizes and errors of a conversion's tensors, added up by layer and by role. */
#ifndef APR_ENGINE_QUANT_SUMS_H
#define APR_ENGINE_QUANT_SUMS_H

#include "convert/convert.h"

/* The sums of some tensors. */
typedef struct apr_quant_sum {
    const char *name; /* of the role; NULL: a layer's sum */
    int64_t layer;    /* -1: tensors outside layers */
    size_t n_tensors, n_changed;
    uint64_t bytes_before, bytes_after;
    apr_metrics metrics; /* of measured tensors only */
} apr_quant_sum;

typedef struct apr_quant_sums {
    apr_quant_sum all, *roles, *layers; /* layers: [n_layers + 1], the last for tensors outside layers */
    size_t n_roles;                     /* roles that have tensors, sorted by size, largest first */
    int64_t n_layers;
    apr_arena arena;
} apr_quant_sums;

/* For a conversion that was run with want_metrics. */
apr_status apr_quant_sums_of(apr_quant_sums *sums, const apr_conversion *conversion, apr_error *err);
void apr_quant_sums_close(apr_quant_sums *sums);

/* Iterates over the conversion's items that belong to recipe lines, in the order of the lines. item: the previous one, or SIZE_MAX. */
size_t apr_quant_next_item(const apr_conversion *conversion, size_t item);

#endif
