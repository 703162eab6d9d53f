/* gguf_endian.c - byte-swaps the numbers of tensors and of a finished header. */
#include "formats/gguf/gguf_endian.h"

#include <string.h>

enum { MAX_VERSION = 0xffff };

bool apr_gguf_writes_big_endian(const apr_model *layout)
{
    const apr_origin *const o = &layout->origin;
    bool is_flat = true;

    for (size_t i = 0; i < layout->n_tensors; i++) is_flat &= apr_dtypes[layout->tensors[i].dtype].elems_per_block == 1;
    return layout->format == APR_FORMAT_APR && o->format == APR_FORMAT_GGUF && apr_gguf_is_big_endian(o->gguf_version) && !o->requantized &&
           is_flat;
}

void apr_gguf_swap(uint8_t *bytes, size_t n_bytes, size_t each)
{
    for (uint8_t *at = bytes; n_bytes >= each && at <= bytes + n_bytes - each; at += each)
        for (size_t i = 0; i < each / 2; i++) {
            const uint8_t byte = at[i];
            at[i] = at[each - 1 - i];
            at[each - 1 - i] = byte;
        }
}

/* Swaps one number. Returns the byte after it. */
static uint8_t *swap_one(uint8_t *at, size_t n_bytes)
{
    apr_gguf_swap(at, n_bytes, n_bytes);
    return at + n_bytes;
}

static uint8_t *swap_string(uint8_t *at, size_t n_text) { return swap_one(at, 8) + n_text; }

static uint8_t *swap_array(uint8_t *at, const apr_kv *item)
{
    const size_t each = apr_kv_type_bytes(item->elem_type), n = (size_t)item->n_elems;

    at = swap_one(swap_one(at, 4), 8);
    for (size_t i = 0; item->elem_type == APR_KV_STRING && i < n; i++) at = swap_string(at, item->value.strings[i].n_bytes);
    if (item->elem_type == APR_KV_STRING) return at;
    apr_gguf_swap(at, n * each, each);
    return at + n * each;
}

static uint8_t *swap_item(uint8_t *at, const apr_kv *item)
{
    at = swap_one(swap_string(at, item->key.n_bytes), 4);
    if (item->type == APR_KV_ARRAY) return swap_array(at, item);
    if (item->type == APR_KV_STRING) return swap_string(at, item->value.string.n_bytes);
    return swap_one(at, apr_kv_type_bytes(item->type));
}

static uint8_t *swap_info(uint8_t *at, const apr_tensor *tensor)
{
    at = swap_one(swap_string(at, strlen(tensor->name)), 4);
    for (int i = 0; i < tensor->rank; i++) at = swap_one(at, 8);
    return swap_one(swap_one(at, 4), 8);
}

void apr_gguf_swap_head(uint8_t *head, const apr_kv_list *kv, const apr_tensor *const *infos, size_t n_infos)
{
    uint8_t *at = swap_one(swap_one(swap_one(head + 4, 4), 8), 8);

    for (size_t i = 0; i < kv->n_items; i++) at = swap_item(at, &kv->items[i]);
    for (size_t i = 0; i < n_infos; i++) at = swap_info(at, infos[i]);
}
