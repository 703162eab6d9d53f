/* model_paths.h - the file or folder that is meant: ids of the Hugging Face cache, folders with one GGUF, folders without weights. */
#ifndef APR_TOOLS_MODEL_PATHS_H
#define APR_TOOLS_MODEL_PATHS_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stddef.h>

/* For a folder that holds GGUFs and no checkpoint: the path of the first GGUF, and their number in *n. NULL for other folders. */
const char *apr_first_gguf_of_folder(const char *path, int *n, apr_arena *arena);

/* If `text` is not an existing path but ORG/NAME[@REVISION][:TAG], *path becomes the path of a cached snapshot, or of a GGUF in it.
 * APR_E_IO: `text` is such an id, but no cache has it. */
apr_status apr_hub_id_resolve(const char *text, const char **path, apr_arena *arena, apr_error *err);

/* A folder that holds a config.json and no weights is enough to plan, and to show the configuration. If `path` is one: writes the path of
 * its config.json to `text` and returns it. Otherwise NULL. */
const char *apr_config_only_path(const char *path, char *text, size_t capacity);

#endif
