/* kv.h - typed metadata: a gathered list of key = value, with the types of GGUF, which are the richest of the three formats.
 *
 * Safetensors' __metadata__ is a list of strings. An APR file that was made from a GGUF carries the list in GGUF's binary form, so that
 * every key, type and order survives. Numbers keep their exact bits. Values borrow from the bytes they were read from. */
#ifndef APR_FORMATS_KV_H
#define APR_FORMATS_KV_H

#include "formats/base/arena.h"
#include "formats/base/bytes.h"
#include "formats/base/status.h"

/* X(id, GGUF's number, bytes of one element or 0, name) */
#define APR_KV_TYPE_LIST(X)   \
    X(U8, 0, 1, "u8")         \
    X(I8, 1, 1, "i8")         \
    X(U16, 2, 2, "u16")       \
    X(I16, 3, 2, "i16")       \
    X(U32, 4, 4, "u32")       \
    X(I32, 5, 4, "i32")       \
    X(F32, 6, 4, "f32")       \
    X(BOOL, 7, 1, "bool")     \
    X(STRING, 8, 0, "string") \
    X(ARRAY, 9, 0, "array")   \
    X(U64, 10, 8, "u64")      \
    X(I64, 11, 8, "i64")      \
    X(F64, 12, 8, "f64")

typedef enum {
#define X(id, number, bytes, name) APR_KV_##id = number,
    APR_KV_TYPE_LIST(X)
#undef X
        APR_KV_TYPE_COUNT
} apr_kv_type;

/* Text with a length: GGUF strings are not terminated and may hold any byte. */
typedef struct apr_str {
    const char *text;
    size_t n_bytes;
} apr_str;

typedef struct apr_kv {
    apr_str key;
    apr_kv_type type;
    apr_kv_type elem_type; /* arrays only; never ARRAY */
    uint64_t n_elems;      /* arrays only */
    union {
        uint64_t bits;          /* scalars: the value's bytes, little-endian, zero-extended */
        apr_str string;         /* STRING */
        const void *numbers;    /* arrays of numbers: packed little-endian elements */
        const apr_str *strings; /* arrays of STRING */
    } value;
} apr_kv;

typedef struct apr_kv_list {
    apr_kv *items;
    size_t n_items, capacity;
    apr_arena *arena; /* owns the table and the copies in it */
} apr_kv_list;

size_t apr_kv_type_bytes(apr_kv_type type);
const char *apr_kv_type_name(apr_kv_type type);

static inline apr_str apr_str_of(const char *text) { return (apr_str){text, strlen(text)}; }
static inline bool apr_str_is(apr_str s, const char *text) { return s.n_bytes == strlen(text) && memcmp(s.text, text, s.n_bytes) == 0; }
static inline bool apr_str_begins_with(apr_str s, const char *head)
{
    return s.n_bytes >= strlen(head) && memcmp(s.text, head, strlen(head)) == 0;
}

/* Is the string well-formed UTF-8 (no overlong forms, no surrogates)? The empty string is. */
bool apr_str_is_utf8(apr_str s);

const apr_kv *apr_kv_find(const apr_kv_list *list, const char *key);

/* Scalars as numbers. False when the key is missing or is not a number. Floats are not converted to integers. */
bool apr_kv_get_int(const apr_kv_list *list, const char *key, int64_t *value);
bool apr_kv_get_real(const apr_kv_list *list, const char *key, double *value); /* also from integers */
bool apr_kv_get_bool(const apr_kv_list *list, const char *key, bool *value);
bool apr_kv_get_string(const apr_kv_list *list, const char *key, apr_str *value);
/* Element i of an array of integers or bools / of reals or integers; 0 for other arrays and indices out of range. */
int64_t apr_kv_elem_int(const apr_kv *array, uint64_t i);
double apr_kv_elem_real(const apr_kv *array, uint64_t i);

/* Appends the item, or replaces the value of an existing key. Keys and values are borrowed: copy them to the arena first if they do not
 * outlive the list. Fails with APR_E_MEMORY only. */
apr_status apr_kv_set(apr_kv_list *list, const apr_kv *item, apr_error *err);
apr_status apr_kv_set_int(apr_kv_list *list, const char *key, apr_kv_type type, int64_t value, apr_error *err);
apr_status apr_kv_set_f32(apr_kv_list *list, const char *key, float value, apr_error *err);
apr_status apr_kv_set_bool(apr_kv_list *list, const char *key, bool value, apr_error *err);
apr_status apr_kv_set_string(apr_kv_list *list, const char *key, apr_str value, apr_error *err);
void apr_kv_remove(apr_kv_list *list, const char *key);

/* Does the item describe the model (name, author, licence, what was merged into it, where its imatrix came from)? Every format has a
 * place for such items. */
bool apr_kv_is_about(const apr_kv *item);

/* Reads GGUF's binary form: n_items times {string key, u32 type, value} at the cursor. It replaces the list's items; the list's arena
 * must be set. Big-endian numbers are swapped into the arena. Keys become NUL-terminated copies; strings and arrays borrow from the
 * cursor's bytes. APR_E_DAMAGED: duplicate keys, keys that are not UTF-8, bools other than 0 and 1, or counts that the remaining bytes
 * cannot hold. APR_E_UNSUPPORTED: nested arrays. `where` names the file in messages. */
apr_status apr_kv_read(apr_cursor *cursor, uint64_t n_items, const char *where, apr_kv_list *list, apr_error *err);
/* Fails with `status` at a key that GGUF does not allow: empty, or longer than 65535 bytes. */
apr_status apr_kv_check_keys(const apr_kv_list *kv, const char *where, apr_status status, apr_error *err);
/* The number of bytes that apr_kv_write writes, and the writing itself (little-endian). */
uint64_t apr_kv_bytes(const apr_kv_list *list);
void apr_kv_write(const apr_kv_list *list, uint8_t *dst);

#endif
