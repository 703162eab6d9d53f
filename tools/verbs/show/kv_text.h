/* kv_text.h - formats a metadata value as text (shortened) and as JSON (complete). */
#ifndef APR_TOOLS_KV_TEXT_H
#define APR_TOOLS_KV_TEXT_H

#include "formats/base/json.h"
#include "formats/tensor/kv.h"

enum { APR_VALUE_COLUMNS = 48, APR_KV_TEXT = 256 }; /* columns shown of a value; buffer size that always suffices */

/* "qwen2", "1000000", "151936 values: ! \" # $ ..."; returns text. */
char *apr_kv_text(const apr_kv *kv, char text[APR_KV_TEXT]);
/* "string", "u32", "string[151936]"; returns text. */
char *apr_kv_type_text(const apr_kv *kv, char *text, size_t n_bytes);
/* Numbers as numbers (u64 exactly), arrays as arrays. */
void apr_kv_json(apr_json_text *out, const char *key, const apr_kv *kv);

#endif
