/* adapter.h - what fine-tuning left beside a model: matrices of low rank that are added to its weights (LoRA), and tensors that take
 * the place of some.
 *
 *     W'[row, column] = W[row, column] + scale * sum over k of b[row, k] * a[k, column]
 *
 * with scale = alpha / rank, or alpha / sqrt(rank) where the adapter says so. DoRA then brings each row to a length of its own. A reader
 * checks an adapter by itself; convert/adapters.h holds it against a model. Names are those
 * of the model's checkpoint, or of its GGUF. */
#ifndef APR_FORMATS_ADAPTER_H
#define APR_FORMATS_ADAPTER_H

#include "formats/model/model.h"

/* Either `whole`, or a and b. */
typedef struct apr_adapter_change {
    const char *name;             /* of the tensor that it changes: "model.layers.0.self_attn.q_proj.weight" */
    const apr_tensor *whole;      /* takes its place */
    const apr_tensor *a, *b;      /* [rank, columns] and [rows, rank] */
    const apr_tensor *magnitudes; /* DoRA: [rows], the length of each row; NULL: rows are as long as they become */
    double alpha, scale;
} apr_adapter_change;

typedef struct apr_adapter {
    const char *path;
    const char *base;            /* what it was trained on, as it says; NULL: it does not say */
    const char *beside;          /* files of a tokenizer that lie beside it and are not read, "a, b"; NULL: none */
    const char *unknown_fields;  /* of its configuration, "a, b"; NULL: all are known */
    apr_dialect dialect;         /* whose names and row orders the changes have */
    bool transposed;             /* fan_in_fan_out: meant for weights [in, out] */
    bool ties_output;            /* what it does to the embedding is meant for a tied output, too */
    apr_adapter_change *changes; /* [n_changes], by name */
    size_t n_changes;
    apr_model files; /* owns tensors, maps and all texts */
} apr_adapter;

/* A folder of PEFT (adapter_config.json and adapter_model.safetensors or .bin), that file of weights, or a GGUF. APR_E_DAMAGED: the two
 * contradict each other, or half of a pair is missing. APR_E_UNSUPPORTED: it asks for what is not done here, by name. On failure it is
 * closed. */
apr_status apr_adapter_open(apr_adapter *adapter, const char *path, apr_error *err);
void apr_adapter_close(apr_adapter *adapter);

/* Does an adapter lie at this path, rather than a model? */
bool apr_is_adapter(const char *path);

/* Least and most of the changes with a and b; false: there are none. */
typedef struct apr_adapter_range {
    int64_t least_rank, most_rank;
    double least_alpha, most_alpha, least_scale, most_scale;
    size_t n_low_rank, n_magnitudes, n_whole;
} apr_adapter_range;
apr_adapter_range apr_adapter_count(const apr_adapter *adapter);

/* "rank 16, alpha 32, scale 2, 14 targets (q_proj, v_proj in 7 layers)". factor: what the caller multiplies the scales by. In the
 * arena; NULL: no memory. */
const char *apr_adapter_text(const apr_adapter *adapter, double factor, apr_arena *arena);
/* "q_proj, v_proj": each module that has a and b once, without the path to it. In the arena; NULL: no memory. */
const char *apr_adapter_targets(const apr_adapter *adapter, apr_arena *arena);

#endif
