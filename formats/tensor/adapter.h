/* adapter.h - a fine-tuning adapter: low-rank matrices that are added to a model's weights (LoRA), and tensors that replace some of them.
 *
 *     W'[row, column] = W[row, column] + scale * sum over k of b[row, k] * a[k, column]
 *
 * with scale = alpha / rank, or alpha / sqrt(rank) where the adapter says so. DoRA then scales each row to a stated length.
 * A reader checks an adapter on its own; convert/adapters.h checks it against a model. Names are those of the model's checkpoint or of
 * its GGUF. */
#ifndef APR_FORMATS_ADAPTER_H
#define APR_FORMATS_ADAPTER_H

#include "formats/tensor/model.h"

/* One change: either `whole`, or a and b. */
typedef struct apr_adapter_change {
    const char *name;             /* the tensor that is changed: "model.layers.0.self_attn.q_proj.weight" */
    const apr_tensor *whole;      /* replaces it */
    const apr_tensor *a, *b;      /* [rank, columns] and [rows, rank] */
    const apr_tensor *magnitudes; /* DoRA: [rows], the length of each row; NULL: rows are not rescaled */
    double alpha, scale;
} apr_adapter_change;

typedef struct apr_adapter {
    const char *path;
    const char *base;            /* the model it was trained on, as the adapter states it; NULL: not stated */
    const char *tokenizer_files; /* tokenizer files next to the adapter, which are not read: "a, b"; NULL: none */
    const char *unknown_fields;  /* unknown fields of its configuration: "a, b"; NULL: all are known */
    apr_naming naming;           /* naming scheme and row order of the changes */
    bool transposed;             /* fan_in_fan_out: meant for weights [in, out] */
    bool ties_output;            /* the changes to the embedding also apply to a tied output head */
    apr_adapter_change *changes; /* [n_changes], sorted by name */
    size_t n_changes;
    apr_model files; /* owns tensors, maps and all texts */
} apr_adapter;

/* Opens a PEFT folder (adapter_config.json and adapter_model.safetensors or .bin), its weights file alone, or a GGUF. APR_E_DAMAGED:
 * configuration and weights contradict each other, or half of a pair is missing. APR_E_UNSUPPORTED: the adapter uses a feature that is
 * not implemented; the message names it. A failed open closes the adapter. */
apr_status apr_adapter_open(apr_adapter *adapter, const char *path, apr_error *err);
void apr_adapter_close(apr_adapter *adapter);

/* Is there an adapter at this path, rather than a model? */
bool apr_is_adapter(const char *path);

/* Smallest and largest values over the changes that have a and b, and counts. All zero when there are none. */
typedef struct apr_adapter_range {
    int64_t least_rank, most_rank;
    double least_alpha, most_alpha, least_scale, most_scale;
    size_t n_low_rank, n_magnitudes, n_whole;
} apr_adapter_range;
apr_adapter_range apr_adapter_ranges(const apr_adapter *adapter);

/* For readers: replaces a matrix of the adapter by its transpose, with the same name. */
apr_status apr_adapter_transpose(apr_adapter *adapter, const apr_tensor **matrix, apr_error *err);

/* "rank 16, alpha 32, scale 2, 14 targets (q_proj, v_proj in 7 layers)". factor: the caller's multiplier of the scales. Allocated in the
 * arena; NULL: out of memory. */
const char *apr_adapter_text(const apr_adapter *adapter, double factor, apr_arena *arena);
/* "q_proj, v_proj": each module that has a and b, once, without its path. Allocated in the arena; NULL: out of memory. */
const char *apr_adapter_targets(const apr_adapter *adapter, apr_arena *arena);

#endif
