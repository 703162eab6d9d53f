/* lora.h - reads adapters as PEFT saves them: adapter_config.json (rank, alpha, settings) and adapter_model.safetensors (tensors).
 *
 *     base_model.model.MODULE.lora_A.weight            [rank, in]       MODULE.lora_B.weight     [out, rank]
 *     base_model.model.MODULE.lora_embedding_A         [rank, tokens]   MODULE.lora_embedding_B  [width, rank]: both transposed
 *     base_model.model.MODULE.lora_magnitude_vector    [out]            DoRA
 *     base_model.model.MODULE.weight, .bias                             modules_to_save, trained biases, embeddings saved along
 *
 * The adapter's name may follow lora_A ("lora_A.default.weight"). Any other tensor is an error that names it: silently dropping it would
 * make another model. */
#ifndef APR_FORMATS_LORA_H
#define APR_FORMATS_LORA_H

#include "formats/tensor/adapter.h"

#define APR_LORA_CONFIG  "adapter_config.json"
#define APR_LORA_WEIGHTS "adapter_model.safetensors"
#define APR_LORA_PICKLE  "adapter_model.bin" /* of older versions; read by formats/torch/torch.h, which executes nothing */

/* Opens a folder (also one in a hub's cache), or the file of weights in it. On failure the adapter is closed. */
apr_status apr_lora_open(apr_adapter *adapter, const char *path, apr_error *err);

/* Numbers for modules whose names match: PEFT's rank_pattern and alpha_pattern. */
typedef struct apr_lora_pattern {
    const char *key; /* a regular expression for the end of a module's name, from a dot or the beginning on */
    double value;
} apr_lora_pattern;

typedef struct apr_lora_config {
    const char *where;
    const char *base, *unknown_fields; /* or NULL */
    int64_t rank;
    double alpha;
    bool by_root; /* use_rslora: scale = alpha / sqrt(rank) */
    bool has_magnitudes, transposed, ties_output;
    apr_lora_pattern *ranks, *alphas;
    size_t n_ranks, n_alphas;
} apr_lora_config;

/* Reads the bytes of an adapter_config.json. `where` names the file and must live as long as *config. APR_E_DAMAGED: a field is missing or
 * invalid. APR_E_UNSUPPORTED: a field changes the arithmetic in a way that cannot be merged. */
apr_status apr_lora_config_read(apr_lora_config *config, const uint8_t *text, size_t n_bytes, apr_arena *arena, const char *where,
                                apr_error *err);
/* Rank, alpha and scale of one module: by the first pattern that matches its name, or the defaults. */
apr_status apr_lora_config_of(const apr_lora_config *config, const char *module, int64_t *rank, double *alpha, double *scale,
                              apr_error *err);

#endif
