/* rope_tensors.c - writes divisors of rotary frequencies as float32 tensors. */
#include "convert/rope_tensors.h"

#include "convert/provenance.h"
#include "formats/number/half.h"

#include <string.h>

_Static_assert((int)APR_N_ROPE_TENSORS <= (int)APR_PROVENANCE_SPARE, "apr_provenance_undo leaves enough spare entries");

static const char freqs[] = "rope_freqs.weight", long_factors[] = "rope_factors_long.weight", short_factors[] = "rope_factors_short.weight";

bool apr_is_rope_tensor(const apr_model *model, const char *name)
{
    const apr_rope_scaling *const rope = &model->hparams.rope;
    if (strcmp(name, freqs) == 0) return rope->kind == APR_ROPE_LLAMA3 || rope->kind == APR_ROPE_PROPORTIONAL;
    return rope->kind == APR_ROPE_LONGROPE && rope->n_factors > 0 && (strcmp(name, long_factors) == 0 || strcmp(name, short_factors) == 0);
}

/* The head size that the table is for; gemma 4's table is for its full attention layers. */
static int64_t table_width(const apr_hparams *h)
{
    if (h->rope.kind != APR_ROPE_PROPORTIONAL) return h->rotary_dim;
    return h->global_head_dim > 0 ? h->global_head_dim : h->head_dim;
}

static float divisor(const apr_hparams *h, int64_t i, int64_t n)
{
    if (h->rope.kind == APR_ROPE_LLAMA3) return (float)apr_rope_divisor(&h->rope, h->rope_theta, h->rotary_dim, i);
    const double part = h->rope.partial_rotary_factor > 0 ? h->rope.partial_rotary_factor : 1;
    return i < (int64_t)((double)(2 * n) * part / 2) ? 1.0f : 1e30f; /* the other pairs are not rotated */
}

/* Adds a tensor with a table of n numbers; NULL: no memory. */
static float *add(apr_model *view, const char *name, int64_t n)
{
    float *const table = apr_arena_array(&view->arena, (size_t)n, sizeof *table);
    apr_tensor *const tensor = &view->tensors[view->n_tensors];
    if (table == NULL) return NULL;
    *tensor = (apr_tensor){.name = name, .dtype = APR_F32, .rank = 1, .dims = {n}, .data = (const uint8_t *)table};
    view->n_tensors++;
    return table;
}

static bool add_factors(apr_model *view, const char *name, const double *factors, int64_t n)
{
    float *const table = add(view, name, n);
    for (int64_t i = 0; i < n && table != NULL; i++) apr_store_le32(&table[i], apr_f32_bits((float)factors[i]));
    return table != NULL;
}

static bool add_divisors(apr_model *view, int64_t n)
{
    float *const table = add(view, freqs, n);
    for (int64_t i = 0; i < n && table != NULL; i++) apr_store_le32(&table[i], apr_f32_bits(divisor(&view->hparams, i, n)));
    return table != NULL;
}

apr_status apr_add_rope_tensors(apr_model *view, apr_error *err)
{
    const apr_hparams *const h = &view->hparams;
    const size_t first = view->n_tensors;
    bool ok = true;

    if ((h->rope.kind == APR_ROPE_LLAMA3 || h->rope.kind == APR_ROPE_PROPORTIONAL) && table_width(h) >= 2 &&
        apr_model_find(view, freqs) == NULL)
        ok = add_divisors(view, table_width(h) / 2);
    if (h->rope.kind == APR_ROPE_LONGROPE && h->rope.long_factor != NULL && h->rope.short_factor != NULL && h->rope.n_factors > 0 &&
        apr_model_find(view, long_factors) == NULL)
        ok = add_factors(view, long_factors, h->rope.long_factor, h->rope.n_factors) &&
             add_factors(view, short_factors, h->rope.short_factor, h->rope.n_factors);
    if (!ok) return apr_no_memory(err, "rotary divisors");
    for (size_t i = first; i < view->n_tensors; i++) APR_TRY(apr_tensor_size(&view->tensors[i], view->path, err));
    return APR_OK;
}
