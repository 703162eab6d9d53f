/* gguf_layers.c - finds the kind of each layer by GGUF's keys: arrays with one entry per layer, periods, or the architecture's default. */
#include "formats/shape/gguf_keys.h"
#include "formats/shape/window.h"

/* The array with an entry for each layer; NULL: not an array of numbers, or too short. */
static const apr_kv *by_layer(apr_key_reader *r, const char *name, const apr_hparams *h)
{
    const apr_kv *const item = apr_gguf_key(r, name);
    const bool fits = item != NULL && item->type == APR_KV_ARRAY && item->elem_type != APR_KV_STRING;
    return fits && item->n_elems >= (uint64_t)h->num_layers ? item : NULL;
}

static apr_status get_kinds(apr_hparams *h, uint8_t **kinds, apr_arena *arena, apr_error *err)
{
    *kinds = apr_arena_alloc(arena, (size_t)h->num_layers);
    if (*kinds == NULL) return apr_no_memory(err, "the kinds of the layers");
    memset(*kinds, 0, (size_t)h->num_layers);
    return APR_OK;
}

/* Which layers have a sliding window, or attend within their chunk. */
static apr_status read_windows(apr_key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    apr_window_layers window = {.full_every = r->facts->full_every};
    const apr_kv *const pattern = by_layer(r, "attention.sliding_window_pattern", h);
    uint8_t *kinds;

    apr_kv_get_int(r->kv, r->key, &window.full_every);
    const bool stated_none = r->facts->chunks && apr_gguf_key(r, "attention.sliding_window") != NULL && h->sliding_window == 0;
    const bool limits = r->facts->chunks ? h->attention_chunk_size > 0 && !stated_none : h->sliding_window > 0;
    if (!limits || (window.full_every <= 1 && pattern == NULL)) return APR_OK;
    APR_TRY(get_kinds(h, &kinds, arena, err));
    for (int64_t i = 0; i < h->num_layers; i++) {
        const bool is_limited = pattern != NULL ? apr_kv_elem_int(pattern, (uint64_t)i) != 0 : apr_layer_slides(window, i);
        kinds[i] = !is_limited ? APR_LAYER_FULL : r->facts->chunks ? APR_LAYER_CHUNKED : APR_LAYER_SLIDING;
    }
    h->layer_kinds = kinds;
    return APR_OK;
}

/* Layers without key/value heads are convolution or Mamba layers. If feed_forward_length is an array, those with a width have only a
 * feed-forward. */
static apr_status read_mixers(apr_key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    const apr_layer_kind other = apr_gguf_key(r, "shortconv.l_cache") != NULL ? APR_LAYER_CONV
                                 : apr_gguf_key(r, "ssm.conv_kernel") != NULL ? APR_LAYER_MAMBA
                                                                              : APR_LAYER_FULL;
    const apr_kv *const widths = by_layer(r, "feed_forward_length", h), *const heads = by_layer(r, "attention.head_count_kv", h);
    uint8_t *kinds, *ffns;

    if (heads == NULL || other == APR_LAYER_FULL) return APR_OK;
    APR_TRY(get_kinds(h, &kinds, arena, err));
    APR_TRY(get_kinds(h, &ffns, arena, err));
    for (uint64_t i = 0; i < (uint64_t)h->num_layers; i++) {
        const bool attends = apr_kv_elem_int(heads, i) > 0, has_ffn = widths == NULL || apr_kv_elem_int(widths, i) > 0;
        kinds[i] = (uint8_t)(attends ? APR_LAYER_FULL : widths != NULL && has_ffn ? APR_LAYER_NONE : other);
        ffns[i] = !has_ffn ? APR_FFN_NONE : h->num_experts > 0 ? APR_FFN_EXPERTS : APR_FFN_DENSE;
    }
    h->layer_kinds = kinds;
    if (widths != NULL) h->ffn_kinds = ffns;
    return APR_OK;
}

/* The first n_dense layers are dense. After them every step-th layer has experts. */
static apr_status read_experts(apr_key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    int64_t n_dense = 0, step = 1;
    uint8_t *kinds;

    apr_gguf_key_int(r, "leading_dense_block_count", &n_dense);
    apr_gguf_key_int(r, "interleave_moe_layer_step", &step);
    if (h->num_experts <= 0 || h->ffn_kinds != NULL || (n_dense <= 0 && step <= 1)) return APR_OK;
    APR_TRY(get_kinds(h, &kinds, arena, err));
    for (int64_t i = 0; i < h->num_layers; i++)
        kinds[i] = i >= n_dense && (step <= 1 || (i + 1) % step == 0) ? APR_FFN_EXPERTS : APR_FFN_DENSE;
    h->ffn_kinds = kinds;
    return APR_OK;
}

static bool lacks_rope(apr_nope_rule rule, const apr_hparams *h, int64_t layer)
{
    if (rule == APR_NOPE_FOURTH) return (layer + 1) % 4 == 0;
    return rule != APR_NOPE_FULL || apr_layer_kind_of(h, layer) == APR_LAYER_FULL;
}

static apr_status read_positions(apr_key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    const apr_nope_rule rule = r->facts->nope;
    bool finetuned = true;
    uint8_t *none;

    apr_gguf_key(r, "rope.scaling.finetuned");
    apr_kv_get_bool(r->kv, r->key, &finetuned);
    const bool matters = rule == APR_NOPE_FULL || r->facts->chunks ? h->layer_kinds != NULL : true;
    if (rule == APR_NOPE_NONE || !matters || (rule == APR_NOPE_UNLESS_FINETUNED && finetuned)) return APR_OK;
    APR_TRY(get_kinds(h, &none, arena, err));
    for (int64_t i = 0; i < h->num_layers; i++) none[i] = lacks_rope(rule, h, i);
    h->no_rope = none;
    return APR_OK;
}

apr_status apr_gguf_read_layers(apr_key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    if (h->num_layers <= 0 || h->num_layers > APR_GGUF_MAX_LAYERS) return APR_OK; /* apr_hparams_complete reports it */
    APR_TRY(read_windows(r, h, arena, err));
    APR_TRY(read_mixers(r, h, arena, err));
    APR_TRY(read_experts(r, h, arena, err));
    return read_positions(r, h, arena, err);
}
