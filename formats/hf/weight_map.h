/* weight_map.h - applies an index to shards that were read: it decides between copies of a tensor, and names missing tensors. */
#ifndef APR_FORMATS_HF_WEIGHT_MAP_H
#define APR_FORMATS_HF_WEIGHT_MAP_H

#include "formats/base/json.h"
#include "formats/tensor/model.h"

/* Shards in the order in which they were read. Shard i has tensors[first_tensor[i]] up to, not including, tensors[first_tensor[i + 1]]. */
typedef struct apr_shards {
    const char **names;   /* [n] sorted, each once */
    size_t *first_tensor; /* [n + 1] */
    size_t n;
} apr_shards;

/* Removes copies of tensors that the index places in another shard. Adds names that no shard has to model->not_copied. APR_E_DAMAGED: a
 * tensor is in another shard than the index says, and not in that one. Call it before apr_model_index_names. */
apr_status apr_weight_map_apply(apr_model *model, const cJSON *index, const apr_shards *shards, const char *where, apr_error *err);

/* True: the index names another file than this one. */
bool apr_weight_map_has_others(const cJSON *index, const char *name);

#endif
