/* weight_files.h - which files of a checkpoint's folder are its weights. Looks at names; opens nothing.
 *
 * The first of these that is there: model.safetensors or its index; pytorch_model.bin or its index; consolidated.safetensors or its
 * index; consolidated.00.safetensors or .pth, when it is the only part; shards without an index, "model-00001-of-00003.safetensors". */
#ifndef APR_FORMATS_WEIGHT_FILES_H
#define APR_FORMATS_WEIGHT_FILES_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>

typedef struct apr_weights_choice {
    const char *name; /* static, or of the arena */
    bool is_index;
    bool is_numbered;   /* name is the first of several shards, without an index */
    const char *others; /* "consolidated.safetensors, pytorch_model.bin": the same in other files that were not chosen, or NULL */
} apr_weights_choice;

/* "PREFIX-00001-of-00003.ENDING" */
typedef struct apr_numbered_name {
    size_t n_prefix; /* bytes, with the '-' */
    size_t n;        /* shards */
    const char *ending;
} apr_numbered_name;

bool apr_numbered_parse(const char *name, apr_numbered_name *numbered);
/* The name of another shard, from 1; NULL: no memory. */
const char *apr_numbered_print(const char *name, const apr_numbered_name *numbered, size_t number, apr_arena *arena);

/* APR_E_IO: none is there, or a link leads to what was not fetched. APR_E_UNSUPPORTED: every matrix is cut into several parts. */
apr_status apr_choose_weights(const char *folder, apr_weights_choice *choice, apr_arena *arena, apr_error *err);

#endif
