/* weight_files.h - chooses the files of weights in a checkpoint's folder by their names. Opens nothing.
 *
 * The first of these that exists: model.safetensors or its index; pytorch_model.bin or its index; consolidated.safetensors or its
 * index; consolidated.00.safetensors or .pth, if it is the only part; shards without an index, "model-00001-of-00003.safetensors". */
#ifndef APR_FORMATS_WEIGHT_FILES_H
#define APR_FORMATS_WEIGHT_FILES_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>

typedef struct apr_weights_choice {
    const char *name; /* static, or in the arena */
    bool is_index;
    bool is_numbered;   /* name is the first of several shards, without an index */
    const char *others; /* files of weights that were not chosen, "consolidated.safetensors, pytorch_model.bin", or NULL */
} apr_weights_choice;

/* Lists all *n shards by the name of the first one: "model-00001-of-00003.safetensors". */
apr_status apr_numbered_names(const char *first, const char ***names, size_t *n, apr_arena *arena, apr_error *err);

/* APR_E_IO: there are none, or a link's target was not fetched. APR_E_UNSUPPORTED: every matrix is split over several files. */
apr_status apr_choose_weights(const char *folder, apr_weights_choice *choice, apr_arena *arena, apr_error *err);

#endif
