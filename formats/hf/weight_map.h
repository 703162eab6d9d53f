/* weight_map.h - what an index says about shards that were read: which of several copies counts, and which names no file has. */
#ifndef APR_FORMATS_HF_WEIGHT_MAP_H
#define APR_FORMATS_HF_WEIGHT_MAP_H

#include "formats/base/json.h"
#include "formats/model/model.h"

/* Shards in the order in which they were read; those of shard i are tensors[first_tensor[i]] to tensors[first_tensor[i + 1]]. */
typedef struct apr_shards {
    const char **names;   /* [n] sorted, each once */
    size_t *first_tensor; /* [n + 1] */
    size_t n;
} apr_shards;

/* Takes copies out of the model that the index places in another shard, as an overlay leaves them. Names that no shard has are added to
 * model->left_behind. APR_E_DAMAGED: a tensor is in another shard than the index says, and not in that one. Before names are indexed. */
apr_status apr_weight_map_apply(apr_model *model, const cJSON *index, const apr_shards *shards, const char *where, apr_error *err);

/* Does the index name another file than this one? */
bool apr_weight_map_has_others(const cJSON *index, const char *name);

#endif
