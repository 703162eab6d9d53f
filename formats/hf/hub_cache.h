/* hub_cache.h - the folders in which Hugging Face's tools keep what they fetched, looked at and never written to.
 *
 *   models--ORG--NAME/refs/main             the name of a snapshot
 *   models--ORG--NAME/snapshots/HASH/...    a checkpoint, of links to ...
 *   models--ORG--NAME/blobs/SHA             ... the files; SHA.incomplete while they are fetched
 *
 * A folder of one's own that `hf download --local-dir` fills has .cache/huggingface/download/....incomplete meanwhile. */
#ifndef APR_FORMATS_HUB_CACHE_H
#define APR_FORMATS_HUB_CACHE_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

/* When *folder is a models--ORG--NAME, it becomes that of its snapshot: the one that refs/main names, or the only one. APR_E_USAGE:
 * there are several; APR_E_IO: none. Other folders stay. In the arena. */
apr_status apr_hub_resolve(const char **folder, apr_arena *arena, apr_error *err);

/* "fetch it again with 'hf download ORG/NAME'", as far as the path says what it is. Never NULL. */
const char *apr_hub_how_to_fetch(const char *folder, apr_arena *arena);

/* The path of a file that is still being fetched into this checkpoint, or was left so; NULL: there is none. */
const char *apr_hub_unfinished(const char *folder, apr_arena *arena);

#endif
