/* metadata.h - texts that safetensors keep in __metadata__, under the keys that GGUF has for them. */
#ifndef APR_FORMATS_METADATA_H
#define APR_FORMATS_METADATA_H

#include "formats/base/arena.h"
#include "formats/model/kv.h"

#define APR_METADATA_HEAD "aprkit.metadata." /* of texts that GGUF has no key for */

/* "license" -> "general.license", "recipe" -> "aprkit.metadata.recipe", keys of GGUF as they are. *key is NULL for what is not a text about the
 * model: numbers, and the framework that wrote the file ("format"). */
apr_status apr_metadata_gguf_key(const apr_kv *item, apr_arena *arena, const char **key, apr_error *err);

/* NAME of a text "tokenizer.chat_template.NAME", as GGUF calls templates beside the usual one; a part of the key, or NULL. */
#define APR_TEMPLATE_KEY "tokenizer.chat_template."
const char *apr_named_template(const apr_kv *item);

/* The name behind APR_METADATA_HEAD, a part of the key; NULL: it has no such head. */
const char *apr_metadata_own_name(const apr_kv *item);

#endif
