/* json.h - cJSON with strict checks for untrusted files.
 *
 * apr_json_parse refuses: text after the document, nesting deeper than APR_JSON_MAX_DEPTH, invalid UTF-8, duplicate keys in
 * one object, more than APR_JSON_MAX_VALUES values, and \u0000 in a string (a C string cannot hold it). The caller frees with cJSON_Delete.
 * Python's NaN and Infinity are accepted as values, but every number lookup rejects them. Lookups are exact and case-sensitive;
 * each asks for one type of value. `where` names the file in messages. */
#ifndef APR_FORMATS_JSON_H
#define APR_FORMATS_JSON_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    APR_JSON_MAX_DEPTH = 64,
    APR_JSON_MAX_VALUES = 4 << 20 /* about 0.4 GB of cJSON items; the largest tokenizers have two million values */
};

apr_status apr_json_parse(cJSON **json, const void *text, size_t n_bytes, const char *where, apr_error *err);
/* For a library: cJSON's hooks of allocation stay as the program has set them. A document for which memory runs out then counts as damaged. */
void apr_json_leave_hooks(void);

/* NULL when the key is absent or `object` is not an object (NULL included). Linear: use cJSON_ArrayForEach for large objects. */
const cJSON *apr_json_get(const cJSON *object, const char *key);
/* False when absent or not exactly that type: an integer within +-2^53, a finite number, a string, a bool. */
bool apr_json_get_int(const cJSON *object, const char *key, int64_t *value);
bool apr_json_get_real(const cJSON *object, const char *key, double *value);
const char *apr_json_get_string(const cJSON *object, const char *key);
const char *apr_json_get_text(const cJSON *object, const char *key); /* "": there is none */
bool apr_json_get_bool(const cJSON *object, const char *key, bool *value);
bool apr_json_as_int(const cJSON *item, int64_t *value);

/* Writing: a growing text buffer. Strings are escaped; invalid UTF-8 bytes are written as U+FFFD. The builder places the commas.
 * A failed allocation is remembered and reported once, by apr_json_text_take. */
typedef struct apr_json_text {
    char *text;
    size_t n_bytes, capacity;
    bool failed, need_comma;
} apr_json_text;

void apr_json_open(apr_json_text *out, const char *key, char bracket); /* '{' or '['; key NULL inside an array or at the top */
void apr_json_close(apr_json_text *out, char bracket);                 /* '}' or ']' */
void apr_json_string(apr_json_text *out, const char *key, const char *text, size_t n_bytes);
/* The same for a C string. */
static inline void apr_json_cstring(apr_json_text *out, const char *key, const char *text)
{
    apr_json_string(out, key, text, strlen(text));
}
void apr_json_int(apr_json_text *out, const char *key, int64_t value);
void apr_json_uint(apr_json_text *out, const char *key, uint64_t value);
void apr_json_real(apr_json_text *out, const char *key,
                   double value); /* shortest text that reads back equal; always with '.' or 'e'; null if not finite */
void apr_json_reals(apr_json_text *out, const char *key, const double *values, size_t n);
void apr_json_bool(apr_json_text *out, const char *key, bool value);
void apr_json_null(apr_json_text *out, const char *key);
void apr_json_raw(apr_json_text *out, const char *key, const char *text, size_t n_bytes); /* already JSON */
/* Hands the text (NUL-terminated, malloc'ed) to the caller and empties the builder; NULL when memory ran out. */
char *apr_json_text_take(apr_json_text *out, size_t *n_bytes);
void apr_json_text_free(apr_json_text *out);

#endif
