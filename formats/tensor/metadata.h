/* metadata.h - maps the strings of safetensors' __metadata__ to GGUF keys. */
#ifndef APR_FORMATS_METADATA_H
#define APR_FORMATS_METADATA_H

#include "formats/base/arena.h"
#include "formats/tensor/kv.h"

#define APR_METADATA_PREFIX "aprkit.metadata." /* prefix of strings that GGUF has no key for */

/* "license" -> "general.license", "recipe" -> "aprkit.metadata.recipe"; GGUF's keys are kept. *key is NULL for items that are not
 * strings about the model: numbers, and the framework that wrote the file ("format"). */
apr_status apr_metadata_gguf_key(const apr_kv *item, apr_arena *arena, const char **key, apr_error *err);

/* NAME of a key "tokenizer.chat_template.NAME" (GGUF's form for templates other than the default one); points into the key. NULL:
 * another key. */
#define APR_TEMPLATE_KEY "tokenizer.chat_template."
const char *apr_named_template(const apr_kv *item);

/* The name after APR_METADATA_PREFIX, pointing into the key; NULL: the key has another prefix. */
const char *apr_metadata_own_name(const apr_kv *item);

#endif
