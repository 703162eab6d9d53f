/* hub_cache.h - the cache of Hugging Face's tools. It is read, never written.
 *
 *   models--ORG--NAME/refs/main             the name of a snapshot
 *   models--ORG--NAME/snapshots/HASH/...    a checkpoint, of links to ...
 *   models--ORG--NAME/blobs/SHA             ... the files; SHA.incomplete while they are fetched
 *
 * A folder that `hf download --local-dir` fills has .cache/huggingface/download/....incomplete while files are fetched. */
#ifndef APR_FORMATS_HUB_CACHE_H
#define APR_FORMATS_HUB_CACHE_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <unistd.h>

/* Replaces *folder, if it is a models--ORG--NAME, by its snapshot's folder (in the arena): the one that refs/main names, or the only one.
 * APR_E_USAGE: there are several. APR_E_IO: there is none. Other folders stay as they are. */
apr_status apr_hub_resolve(const char **folder, apr_arena *arena, apr_error *err);

/* "fetch it again with 'hf download ORG/NAME'"; shorter if the path does not name the model. Never NULL. */
const char *apr_hub_how_to_fetch(const char *folder, apr_arena *arena);

/* The path of an incomplete file of this checkpoint, which is being fetched or was interrupted; NULL: none. */
const char *apr_hub_incomplete(const char *folder, apr_arena *arena);

/* Is there a file of this name? The path is made in the arena. */
static inline bool apr_folder_has(const char *folder, const char *name, apr_arena *arena)
{
    const char *const path = apr_arena_print(arena, "%s/%s", folder, name);
    return path != NULL && access(path, F_OK) == 0;
}

#endif
