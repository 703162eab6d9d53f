/* kv.c - typed metadata: lookups, changes, and GGUF's binary form. */
#include "formats/tensor/kv.h"

#include "formats/tensor/kv_copy.h"

#include <math.h>
#include <stdlib.h>

#define X(id, number, bytes, name) _Static_assert(APR_KV_##id == number, "the enum counts as GGUF does");
APR_KV_TYPE_LIST(X)
#undef X

enum {
    MIN_ITEM_BYTES = 8 + 4 + 1, /* length, type, one byte of value */
    STRING_HEAD_BYTES = 8,
    ARRAY_HEAD_BYTES = 4 + 8
};

static const struct {
    size_t n_bytes;
    const char *name;
} types[APR_KV_TYPE_COUNT] = {
#define X(id, number, bytes, name) [APR_KV_##id] = {bytes, name},
    APR_KV_TYPE_LIST(X)
#undef X
};

size_t apr_kv_type_bytes(apr_kv_type type) { return (unsigned)type < APR_KV_TYPE_COUNT ? types[type].n_bytes : 0; }
const char *apr_kv_type_name(apr_kv_type type) { return (unsigned)type < APR_KV_TYPE_COUNT ? types[type].name : "unknown"; }

bool apr_str_is_utf8(apr_str s)
{
    const uint8_t *const b = (const uint8_t *)s.text;

    for (size_t i = 0; i < s.n_bytes;) {
        const size_t n_more = b[i] < 0x80 ? 0 : b[i] >> 5 == 6 ? 1 : b[i] >> 4 == 14 ? 2 : b[i] >> 3 == 30 ? 3 : SIZE_MAX;
        if (n_more >= s.n_bytes - i) return false;
        uint32_t c = n_more == 0 ? b[i] : b[i] & (0x3fu >> n_more);
        for (size_t k = 1; k <= n_more; k++) {
            if ((b[i + k] & 0xc0) != 0x80) return false;
            c = c << 6 | (b[i + k] & 0x3f);
        }
        static const uint32_t smallest[] = {0, 0x80, 0x800, 0x10000}; /* anything below is an overlong form */
        if (c < smallest[n_more] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return false;
        i += n_more + 1;
    }
    return true;
}

/* --- lookups --- */

static const apr_kv *find(const apr_kv_list *list, apr_str key)
{
    for (size_t i = 0; i < list->n_items; i++) {
        const apr_str k = list->items[i].key;
        if (k.n_bytes == key.n_bytes && memcmp(k.text, key.text, key.n_bytes) == 0) return &list->items[i];
    }
    return NULL;
}

const apr_kv *apr_kv_find(const apr_kv_list *list, const char *key) { return find(list, apr_str_of(key)); }

static double f32_of(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, sizeof f);
    return (double)f;
}

static double f64_of(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

/* The integer value of `bits`. False for other types, and for values that int64_t cannot hold. */
static bool int_of(apr_kv_type type, uint64_t bits, int64_t *value)
{
    switch (type) {
    case APR_KV_U8:
    case APR_KV_U16:
    case APR_KV_U32:
    case APR_KV_BOOL: *value = (int64_t)bits; return true;
    case APR_KV_I8: *value = (int8_t)bits; return true;
    case APR_KV_I16: *value = (int16_t)bits; return true;
    case APR_KV_I32: *value = (int32_t)bits; return true;
    case APR_KV_I64: *value = (int64_t)bits; return true;
    case APR_KV_U64: *value = (int64_t)bits; return bits <= INT64_MAX;
    default: return false;
    }
}

static bool real_of(apr_kv_type type, uint64_t bits, double *value)
{
    int64_t i;

    if (type == APR_KV_F32) *value = f32_of(bits);
    else if (type == APR_KV_F64) *value = f64_of(bits);
    else if (type == APR_KV_U64) *value = (double)bits;
    else if (type != APR_KV_BOOL && int_of(type, bits, &i)) *value = (double)i;
    else return false;
    return true;
}

bool apr_kv_get_int(const apr_kv_list *list, const char *key, int64_t *value)
{
    const apr_kv *const item = apr_kv_find(list, key);
    int64_t v;
    if (item == NULL || item->type == APR_KV_BOOL || !int_of(item->type, item->value.bits, &v)) return false;
    *value = v;
    return true;
}

bool apr_kv_get_real(const apr_kv_list *list, const char *key, double *value)
{
    const apr_kv *const item = apr_kv_find(list, key);
    return item != NULL && real_of(item->type, item->value.bits, value);
}

bool apr_kv_get_bool(const apr_kv_list *list, const char *key, bool *value)
{
    const apr_kv *const item = apr_kv_find(list, key);
    if (item == NULL || item->type != APR_KV_BOOL) return false;
    *value = item->value.bits != 0;
    return true;
}

bool apr_kv_get_string(const apr_kv_list *list, const char *key, apr_str *value)
{
    const apr_kv *const item = apr_kv_find(list, key);
    if (item == NULL || item->type != APR_KV_STRING) return false;
    *value = item->value.string;
    return true;
}

static uint64_t load(const void *p, size_t n_bytes)
{
    const uint8_t *const b = p;
    return n_bytes == 1 ? b[0] : n_bytes == 2 ? apr_load_le16(b) : n_bytes == 4 ? apr_load_le32(b) : apr_load_le64(b);
}

/* The bits of element i; false when it does not exist or is not a number. */
static bool elem_bits(const apr_kv *array, uint64_t i, uint64_t *bits)
{
    if (array->type != APR_KV_ARRAY || i >= array->n_elems) return false;
    const size_t n = apr_kv_type_bytes(array->elem_type);
    if (n == 0) return false;
    *bits = load((const uint8_t *)array->value.numbers + i * n, n);
    return true;
}

int64_t apr_kv_elem_int(const apr_kv *array, uint64_t i)
{
    uint64_t bits;
    int64_t value;
    return elem_bits(array, i, &bits) && int_of(array->elem_type, bits, &value) ? value : 0;
}

double apr_kv_elem_real(const apr_kv *array, uint64_t i)
{
    uint64_t bits;
    double value;
    return elem_bits(array, i, &bits) && real_of(array->elem_type, bits, &value) ? value : 0.0;
}

/* --- changes --- */

static apr_status reserve(apr_kv_list *list, size_t n_more, apr_error *err)
{
    if (n_more <= list->capacity - list->n_items) return APR_OK;
    const size_t doubled = list->capacity < 16 ? 32 : list->capacity * 2, needed = list->n_items + n_more;
    const size_t capacity = needed > doubled ? needed : doubled;
    apr_kv *const items = apr_arena_array(list->arena, capacity, sizeof *items);
    if (items == NULL) return apr_no_memory(err, "the metadata");
    if (list->n_items > 0) memcpy(items, list->items, list->n_items * sizeof *items);
    list->items = items;
    list->capacity = capacity;
    return APR_OK;
}

apr_status apr_kv_append(apr_kv_list *list, const apr_kv *item, apr_error *err)
{
    const apr_kv copy = *item; /* a copy, because the item may be in the table that reserve() replaces */
    APR_TRY(reserve(list, 1, err));
    list->items[list->n_items++] = copy;
    return APR_OK;
}

apr_status apr_kv_append_all(apr_kv_list *list, const apr_kv_list *from, apr_error *err)
{
    APR_TRY(reserve(list, from->n_items, err));
    if (from->n_items > 0) memcpy(list->items + list->n_items, from->items, from->n_items * sizeof *from->items);
    list->n_items += from->n_items;
    return APR_OK;
}

apr_status apr_kv_set(apr_kv_list *list, const apr_kv *item, apr_error *err)
{
    const apr_kv *const old = find(list, item->key);
    if (old != NULL) {
        list->items[old - list->items] = *item;
        return APR_OK;
    }
    return apr_kv_append(list, item, err);
}

apr_status apr_kv_set_int(apr_kv_list *list, const char *key, apr_kv_type type, int64_t value, apr_error *err)
{
    const size_t n_bits = 8 * apr_kv_type_bytes(type);
    const uint64_t mask = n_bits == 64 ? UINT64_MAX : (UINT64_C(1) << n_bits) - 1;
    return apr_kv_set(list, &(apr_kv){.key = apr_str_of(key), .type = type, .value.bits = (uint64_t)value & mask}, err);
}

apr_status apr_kv_set_f32(apr_kv_list *list, const char *key, float value, apr_error *err)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return apr_kv_set(list, &(apr_kv){.key = apr_str_of(key), .type = APR_KV_F32, .value.bits = bits}, err);
}

apr_status apr_kv_set_bool(apr_kv_list *list, const char *key, bool value, apr_error *err)
{
    return apr_kv_set(list, &(apr_kv){.key = apr_str_of(key), .type = APR_KV_BOOL, .value.bits = value}, err);
}

apr_status apr_kv_set_string(apr_kv_list *list, const char *key, apr_str value, apr_error *err)
{
    return apr_kv_set(list, &(apr_kv){.key = apr_str_of(key), .type = APR_KV_STRING, .value.string = value}, err);
}

void apr_kv_remove(apr_kv_list *list, const char *key)
{
    const apr_kv *const item = apr_kv_find(list, key);
    if (item == NULL) return;
    const size_t i = (size_t)(item - list->items);
    memmove(&list->items[i], &list->items[i + 1], (--list->n_items - i) * sizeof *list->items);
}

/* --- the binary form, read --- */

/* State of one call of apr_kv_read. Each item takes at least MIN_ITEM_BYTES in the file. So the tables are at most a few times as large
 * as the bytes that are left. */
typedef struct reader {
    apr_cursor *cursor;
    apr_kv_list *list;
    const char *where;
    apr_error *err;
    uint32_t *slots; /* open addressing over list->items: index + 1, 0 is empty */
    size_t mask;
} reader;

static apr_status cut_short(const reader *r, apr_str key)
{
    return apr_fail(r->err, APR_E_DAMAGED, "%s: the metadata ends early: key '%.*s' needs more bytes than the %zu of the file", r->where,
                    (int)(key.n_bytes < 80 ? key.n_bytes : 80), key.text, r->cursor->n_bytes);
}

static bool read_string(apr_cursor *cursor, apr_str *s)
{
    const uint64_t n = apr_cursor_u64(cursor);
    const uint8_t *const text = apr_cursor_take(cursor, n);
    if (text == NULL) return false;
    *s = (apr_str){(const char *)text, (size_t)n};
    return true;
}

static uint64_t read_bits(apr_cursor *cursor, size_t n_bytes)
{
    return n_bytes == 1   ? apr_cursor_u8(cursor)
           : n_bytes == 2 ? apr_cursor_u16(cursor)
           : n_bytes == 4 ? apr_cursor_u32(cursor)
                          : apr_cursor_u64(cursor);
}

static void store(uint8_t *dst, uint64_t bits, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) dst[i] = (uint8_t)(bits >> 8 * i);
}

static apr_status bad_bool(const reader *r, const apr_kv *item, uint64_t value)
{
    return apr_fail(r->err, APR_E_DAMAGED, "%s: key '%.80s' holds the bool %u; only 0 and 1 are allowed", r->where, item->key.text,
                    (unsigned)value);
}

static apr_status read_numbers(reader *r, apr_kv *item)
{
    const size_t n_each = apr_kv_type_bytes(item->elem_type);
    if (item->n_elems > apr_cursor_left(r->cursor) / n_each) return cut_short(r, item->key);
    const size_t n = (size_t)item->n_elems;

    if (r->cursor->big_endian && n_each > 1) {
        uint8_t *const swapped = apr_arena_array(r->list->arena, n, n_each);
        if (swapped == NULL) return apr_no_memory(r->err, "an array of the metadata");
        for (size_t i = 0; i < n; i++) store(swapped + i * n_each, read_bits(r->cursor, n_each), n_each);
        item->value.numbers = swapped;
        return APR_OK;
    }
    const uint8_t *const bytes = apr_cursor_take(r->cursor, n * n_each);
    item->value.numbers = bytes;
    if (item->elem_type == APR_KV_BOOL)
        for (size_t i = 0; i < n; i++)
            if (bytes[i] > 1) return bad_bool(r, item, bytes[i]);
    return APR_OK;
}

static apr_status read_strings(reader *r, apr_kv *item)
{
    if (item->n_elems > apr_cursor_left(r->cursor) / STRING_HEAD_BYTES) return cut_short(r, item->key);
    apr_str *const strings = apr_arena_array(r->list->arena, (size_t)item->n_elems, sizeof *strings);
    if (strings == NULL) return apr_no_memory(r->err, "an array of the metadata");
    for (size_t i = 0; i < item->n_elems; i++)
        if (!read_string(r->cursor, &strings[i])) return cut_short(r, item->key);
    item->value.strings = strings;
    return APR_OK;
}

static apr_status read_array(reader *r, apr_kv *item)
{
    const uint32_t elem_type = apr_cursor_u32(r->cursor);
    item->n_elems = apr_cursor_u64(r->cursor);
    if (r->cursor->failed) return cut_short(r, item->key);
    if (elem_type == APR_KV_ARRAY)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: key '%.80s' holds an array of arrays, which no reader of GGUF accepts", r->where,
                        item->key.text);
    if (elem_type >= APR_KV_TYPE_COUNT)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: key '%.80s' holds an array of the unknown type %u", r->where, item->key.text,
                        elem_type);
    item->elem_type = (apr_kv_type)elem_type;
    return elem_type == APR_KV_STRING ? read_strings(r, item) : read_numbers(r, item);
}

static apr_status read_value(reader *r, apr_kv *item)
{
    if (item->type == APR_KV_ARRAY) return read_array(r, item);
    if (item->type == APR_KV_STRING) return read_string(r->cursor, &item->value.string) ? APR_OK : cut_short(r, item->key);
    item->value.bits = read_bits(r->cursor, apr_kv_type_bytes(item->type));
    if (r->cursor->failed) return cut_short(r, item->key);
    return item->type == APR_KV_BOOL && item->value.bits > 1 ? bad_bool(r, item, item->value.bits) : APR_OK;
}

/* A key becomes part of messages and of JSON, so it must be text. The copy is NUL-terminated. */
static apr_status read_key(reader *r, size_t i, apr_str *key)
{
    const size_t at = r->cursor->at;
    apr_str raw;

    if (!read_string(r->cursor, &raw))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the metadata ends early: key %zu at byte %zu needs more bytes than the %zu of the file",
                        r->where, i, at, r->cursor->n_bytes);
    if (memchr(raw.text, '\0', raw.n_bytes) != NULL || !apr_str_is_utf8(raw))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: key %zu at byte %zu is not UTF-8", r->where, i, at);
    key->text = apr_arena_copy(r->list->arena, raw.text, raw.n_bytes);
    key->n_bytes = raw.n_bytes;
    return key->text != NULL ? APR_OK : apr_no_memory(r->err, "the metadata");
}

/* Adds the item that was appended last to the hash table; false when its key is there already. */
static bool index_last(reader *r)
{
    const apr_kv *const items = r->list->items;
    const apr_str key = items[r->list->n_items - 1].key;
    uint64_t h = 14695981039346656037u; /* FNV-1a */

    for (size_t i = 0; i < key.n_bytes; i++) h = (h ^ (uint8_t)key.text[i]) * 1099511628211u;
    size_t at = (size_t)(h ^ h >> 32) & r->mask;
    for (; r->slots[at] != 0; at = (at + 1) & r->mask) {
        const apr_str k = items[r->slots[at] - 1].key;
        if (k.n_bytes == key.n_bytes && memcmp(k.text, key.text, key.n_bytes) == 0) return false;
    }
    r->slots[at] = (uint32_t)r->list->n_items;
    return true;
}

static apr_status read_items(reader *r, uint64_t n_items)
{
    for (size_t i = 0; i < n_items; i++) {
        apr_kv item = {0};
        APR_TRY(read_key(r, i, &item.key));
        const uint32_t type = apr_cursor_u32(r->cursor);
        if (r->cursor->failed) return cut_short(r, item.key);
        if (type >= APR_KV_TYPE_COUNT)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: key '%.80s' has the unknown type %u", r->where, item.key.text, type);
        item.type = (apr_kv_type)type;
        APR_TRY(read_value(r, &item));
        r->list->items[r->list->n_items++] = item;
        if (!index_last(r)) return apr_fail(r->err, APR_E_DAMAGED, "%s: key '%.80s' occurs twice", r->where, item.key.text);
    }
    return APR_OK;
}

apr_status apr_kv_read(apr_cursor *cursor, uint64_t n_items, const char *where, apr_kv_list *list, apr_error *err)
{
    reader r = {.cursor = cursor, .list = list, .where = where, .err = err};
    size_t n_slots = 16;

    if (n_items > apr_cursor_left(cursor) / MIN_ITEM_BYTES || n_items > UINT32_MAX / 4)
        return apr_fail(err, APR_E_DAMAGED, "%s: %llu keys cannot be in the %zu bytes that are left", where, (unsigned long long)n_items,
                        apr_cursor_left(cursor));
    list->n_items = 0;
    APR_TRY(reserve(list, (size_t)n_items, err));
    while (n_slots < n_items * 2) n_slots *= 2;
    r.mask = n_slots - 1;
    r.slots = calloc(n_slots, sizeof *r.slots);
    if (r.slots == NULL) return apr_no_memory(err, "the metadata");
    const apr_status status = read_items(&r, n_items);
    free(r.slots);
    return status;
}

/* --- the binary form, written --- */

static uint64_t string_bytes(apr_str s) { return STRING_HEAD_BYTES + (uint64_t)s.n_bytes; }

static uint64_t value_bytes(const apr_kv *item)
{
    if (item->type == APR_KV_STRING) return string_bytes(item->value.string);
    if (item->type != APR_KV_ARRAY) return apr_kv_type_bytes(item->type);
    if (item->elem_type != APR_KV_STRING) return ARRAY_HEAD_BYTES + item->n_elems * apr_kv_type_bytes(item->elem_type);
    uint64_t n = ARRAY_HEAD_BYTES;
    for (uint64_t i = 0; i < item->n_elems; i++) n += string_bytes(item->value.strings[i]);
    return n;
}

apr_status apr_kv_check_keys(const apr_kv_list *kv, const char *where, apr_status status, apr_error *err)
{
    enum { MAX_KEY_BYTES = 65535 };

    for (size_t i = 0; i < kv->n_items; i++) {
        const apr_str key = kv->items[i].key;
        if (key.n_bytes == 0 || key.n_bytes > MAX_KEY_BYTES)
            return apr_fail(err, status, "%s: key %zu ('%.40s') is %zu bytes long; GGUF allows 1 to %d", where, i, key.text, key.n_bytes,
                            MAX_KEY_BYTES);
    }
    return APR_OK;
}

uint64_t apr_kv_bytes(const apr_kv_list *list)
{
    uint64_t n = 0;
    for (size_t i = 0; i < list->n_items; i++) n += string_bytes(list->items[i].key) + 4 + value_bytes(&list->items[i]);
    return n;
}

static uint8_t *write_bytes(uint8_t *dst, const void *bytes, size_t n_bytes)
{
    if (n_bytes > 0) memcpy(dst, bytes, n_bytes);
    return dst + n_bytes;
}

static uint8_t *write_string(uint8_t *dst, apr_str s)
{
    apr_store_le64(dst, s.n_bytes);
    return write_bytes(dst + STRING_HEAD_BYTES, s.text, s.n_bytes);
}

static uint8_t *write_array(uint8_t *dst, const apr_kv *item)
{
    apr_store_le32(dst, (uint32_t)item->elem_type);
    apr_store_le64(dst + 4, item->n_elems);
    dst += ARRAY_HEAD_BYTES;
    if (item->elem_type != APR_KV_STRING)
        return write_bytes(dst, item->value.numbers, (size_t)item->n_elems * apr_kv_type_bytes(item->elem_type));
    for (uint64_t i = 0; i < item->n_elems; i++) dst = write_string(dst, item->value.strings[i]);
    return dst;
}

void apr_kv_write(const apr_kv_list *list, uint8_t *dst)
{
    for (size_t i = 0; i < list->n_items; i++) {
        const apr_kv *const item = &list->items[i];
        dst = write_string(dst, item->key);
        apr_store_le32(dst, (uint32_t)item->type);
        dst += 4;
        if (item->type == APR_KV_ARRAY) {
            dst = write_array(dst, item);
        } else if (item->type == APR_KV_STRING) {
            dst = write_string(dst, item->value.string);
        } else {
            store(dst, item->value.bits, apr_kv_type_bytes(item->type));
            dst += apr_kv_type_bytes(item->type);
        }
    }
}

bool apr_kv_is_about(const apr_kv *item)
{
    if (apr_str_begins_with(item->key, "quantize.imatrix.") || apr_str_begins_with(item->key, "quantize.calibration.")) return true;
    return item->type == APR_KV_STRING && (apr_str_begins_with(item->key, "general.") || apr_str_begins_with(item->key, "aprkit.lora."));
}
