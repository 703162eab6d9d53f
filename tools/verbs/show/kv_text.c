/* kv_text.c - formats a metadata value as text (shortened) and as JSON (complete). */
#include "tools/verbs/show/kv_text.h"

#include "formats/base/bytes.h"
#include "tools/report/text.h"

/* Views a scalar as an array of one element, so that the rest of this file handles only arrays. The view borrows from kv. */
static apr_kv as_array(const apr_kv *kv)
{
    apr_kv array = *kv;

    if (kv->type == APR_KV_ARRAY) return array;
    array.type = APR_KV_ARRAY;
    array.elem_type = kv->type;
    array.n_elems = 1;
    if (kv->type == APR_KV_STRING) array.value.strings = &kv->value.string;
    else array.value.numbers = &kv->value.bits; /* little-endian, so the first bytes are the value */
    return array;
}

static bool is_real(apr_kv_type type) { return type == APR_KV_F32 || type == APR_KV_F64; }

/* For values above INT64_MAX, which apr_kv_elem_int cannot return. */
static uint64_t elem_u64(const apr_kv *array, uint64_t i) { return apr_load_le64((const uint8_t *)array->value.numbers + 8 * i); }

static void elem_text(const apr_kv *array, uint64_t i, char text[APR_KV_TEXT])
{
    const apr_kv_type type = array->elem_type;

    if (type == APR_KV_STRING)
        apr_short_text(text, APR_KV_TEXT, array->value.strings[i].text, array->value.strings[i].n_bytes, APR_VALUE_COLUMNS);
    else if (type == APR_KV_BOOL) snprintf(text, APR_KV_TEXT, "%s", apr_kv_elem_int(array, i) != 0 ? "true" : "false");
    else if (type == APR_KV_U64) snprintf(text, APR_KV_TEXT, "%llu", (unsigned long long)elem_u64(array, i));
    else if (is_real(type)) snprintf(text, APR_KV_TEXT, "%.7g", apr_kv_elem_real(array, i));
    else snprintf(text, APR_KV_TEXT, "%lld", (long long)apr_kv_elem_int(array, i));
}

char *apr_kv_text(const apr_kv *kv, char text[APR_KV_TEXT])
{
    const apr_kv array = as_array(kv);
    const char *const quote = kv->type == APR_KV_ARRAY && kv->elem_type == APR_KV_STRING ? "\"" : "";
    char element[APR_KV_TEXT];
    size_t at = 0;
    int columns = 0;

    *text = '\0';
    for (uint64_t i = 0; i < array.n_elems; i++) {
        elem_text(&array, i, element);
        columns += apr_text_columns(element) + 2 * (*quote != '\0') + (i > 0);
        if (columns > APR_VALUE_COLUMNS - (array.n_elems > 1 ? 4 : 0) || at + strlen(element) + 8 > APR_KV_TEXT) {
            snprintf(text + at, APR_KV_TEXT - at, "%s...", i > 0 ? " " : "");
            break;
        }
        at += (size_t)snprintf(text + at, APR_KV_TEXT - at, "%s%s%s%s", i > 0 ? " " : "", quote, element, quote);
    }
    return text;
}

char *apr_kv_type_text(const apr_kv *kv, char *text, size_t n_bytes)
{
    if (kv->type == APR_KV_ARRAY) snprintf(text, n_bytes, "%s[%llu]", apr_kv_type_name(kv->elem_type), (unsigned long long)kv->n_elems);
    else snprintf(text, n_bytes, "%s", apr_kv_type_name(kv->type));
    return text;
}

static void elem_json(apr_json_text *out, const char *key, const apr_kv *array, uint64_t i)
{
    const apr_kv_type type = array->elem_type;

    if (type == APR_KV_STRING) apr_json_string(out, key, array->value.strings[i].text, array->value.strings[i].n_bytes);
    else if (type == APR_KV_BOOL) apr_json_bool(out, key, apr_kv_elem_int(array, i) != 0);
    else if (type == APR_KV_U64) apr_json_uint(out, key, elem_u64(array, i));
    else if (is_real(type)) apr_json_real(out, key, apr_kv_elem_real(array, i));
    else apr_json_int(out, key, apr_kv_elem_int(array, i));
}

void apr_kv_json(apr_json_text *out, const char *key, const apr_kv *kv)
{
    const apr_kv array = as_array(kv);

    if (kv->type == APR_KV_ARRAY) apr_json_open(out, key, '[');
    for (uint64_t i = 0; i < array.n_elems; i++) elem_json(out, kv->type == APR_KV_ARRAY ? NULL : key, &array, i);
    if (kv->type == APR_KV_ARRAY) apr_json_close(out, ']');
}
