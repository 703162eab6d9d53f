/* gguf_rope_tensors.c - rotary scalings that GGUF has no keys for, but tensors of divisors of the frequencies: read and written. */
#include "formats/number/half.h"
#include "formats/shape/gguf_hparams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char freqs[] = APR_ROPE_FREQS, long_factors[] = "rope_factors_long.weight", short_factors[] = "rope_factors_short.weight";

double apr_gguf_shortest_decimal(double f32)
{
    char text[32];

    for (int n_digits = 1; n_digits <= 9; n_digits++) {
        snprintf(text, sizeof text, "%.*g", n_digits, f32);
        if (strtof(text, NULL) == (float)f32) return strtod(text, NULL);
    }
    return f32; /* NaN */
}

/* The divisor of frequency i. It is 1 where the frequency makes more than high_freq_factor rotations in the original context, and
 * `factor` where it makes fewer than low_freq_factor. In between the reciprocal is interpolated linearly in the number of rotations. */
double apr_rope_divisor(const apr_rope_scaling *rope, double theta, int64_t rotary_dim, int64_t i)
{
    static const double two_pi = 6.283185307179586;
    const double turns = (double)rope->original_context * pow(theta, -2.0 * (double)i / (double)rotary_dim) / two_pi;
    const double low = rope->low_freq_factor, high = rope->high_freq_factor;
    const double kept = turns <= low ? 0.0 : turns >= high ? 1.0 : (turns - low) / (high - low);
    return 1.0 / ((1.0 - kept) / rope->factor + kept);
}

/* --- reading --- */

static double number_at(const apr_tensor *t, int64_t i)
{
    const uint32_t bits = apr_load_le32(t->data + 4 * i);
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* llama.cpp divides rotated pairs by 1 and the others by 1e30. */
static bool is_proportional(const apr_tensor *divisors, int64_t n, double *part)
{
    static const double never = 1e29;
    int64_t n_rotated = 0;

    while (n_rotated < n && number_at(divisors, n_rotated) == 1.0) n_rotated++;
    for (int64_t i = n_rotated; i < n; i++)
        if (!(number_at(divisors, i) >= never)) return false;
    *part = (double)n_rotated / (double)n;
    return n_rotated < n;
}

static bool is_llama3(const apr_tensor *divisors, int64_t n, double theta, apr_rope_scaling *llama3)
{
    static const double tolerance = 1e-4;
    /* Llama 3.1 to 3.3 differ only in the factor, which is the largest divisor. */
    *llama3 = (apr_rope_scaling){.kind = APR_ROPE_LLAMA3, .low_freq_factor = 1.0, .high_freq_factor = 4.0, .original_context = 8192};
    for (int64_t i = 0; i < n; i++) llama3->factor = fmax(llama3->factor, number_at(divisors, i));
    for (int64_t i = 0; i < n; i++) {
        const double expected = apr_rope_divisor(llama3, theta, 2 * n, i);
        if (!(fabs(number_at(divisors, i) - expected) <= tolerance * expected)) return false;
    }
    return true;
}

static void read_divisors(const apr_tensor *divisors, apr_hparams *h)
{
    const int64_t n = apr_tensor_elems(divisors);
    apr_rope_scaling llama3;
    double part;

    if (divisors->dtype != APR_F32 || n == 0 || h->rope.kind != APR_ROPE_PLAIN) return;
    if (is_proportional(divisors, n, &part)) h->rope = (apr_rope_scaling){.kind = APR_ROPE_PROPORTIONAL, .partial_rotary_factor = part};
    else if (is_llama3(divisors, n, h->rope_theta, &llama3)) h->rope = llama3;
}

static const double *factors_of(const apr_tensor *t, int64_t n, apr_arena *arena)
{
    double *const factors = apr_arena_array(arena, (size_t)n, sizeof *factors);
    for (int64_t i = 0; i < n && factors != NULL; i++) factors[i] = apr_gguf_shortest_decimal(number_at(t, i));
    return factors;
}

static apr_status read_factors(const apr_tensor *short_, const apr_tensor *long_, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    static const int64_t max_factors = 1 << 16;
    apr_rope_scaling *const rope = &h->rope;
    const int64_t n = apr_tensor_elems(short_);

    if (rope->short_factor != NULL || (rope->kind != APR_ROPE_PLAIN && rope->kind != APR_ROPE_LONGROPE)) return APR_OK;
    if (short_->dtype != APR_F32 || long_->dtype != APR_F32 || n == 0 || n > max_factors || apr_tensor_elems(long_) != n) return APR_OK;
    const double *const s = factors_of(short_, n, arena), *const l = factors_of(long_, n, arena);
    if (s == NULL || l == NULL) return apr_no_memory(err, "the factors of the rotary scaling");
    rope->kind = APR_ROPE_LONGROPE;
    rope->short_factor = s;
    rope->long_factor = l;
    rope->n_factors = n;
    return APR_OK;
}

apr_status apr_gguf_rope_read(apr_model *model, apr_error *err)
{
    const apr_tensor *const divisors = apr_model_find(model, freqs), *const short_ = apr_model_find(model, short_factors),
                            *const long_ = apr_model_find(model, long_factors);

    if (divisors != NULL && divisors->data != NULL) read_divisors(divisors, &model->hparams);
    if (short_ == NULL || long_ == NULL || short_->data == NULL || long_->data == NULL) return APR_OK;
    return read_factors(short_, long_, &model->hparams, &model->arena, err);
}

/* --- writing --- */

static bool has_divisors(const apr_rope_scaling *rope) { return rope->kind == APR_ROPE_LLAMA3 || rope->kind == APR_ROPE_PROPORTIONAL; }

bool apr_gguf_rope_holds(const apr_hparams *h, const char *name)
{
    if (strcmp(name, freqs) == 0) return has_divisors(&h->rope);
    return h->rope.kind == APR_ROPE_LONGROPE && h->rope.n_factors > 0 &&
           (strcmp(name, long_factors) == 0 || strcmp(name, short_factors) == 0);
}

const apr_tensor *apr_gguf_rope_find(const apr_model *model)
{
    return apr_model_find(model, model->hparams.rope.kind == APR_ROPE_LONGROPE ? long_factors : freqs);
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
static float *add_table(apr_model *view, const char *name, int64_t n)
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
    float *const table = add_table(view, name, n);
    for (int64_t i = 0; i < n && table != NULL; i++) apr_store_le32(&table[i], apr_f32_bits((float)factors[i]));
    return table != NULL;
}

static bool add_divisors(apr_model *view, int64_t n)
{
    float *const table = add_table(view, freqs, n);
    for (int64_t i = 0; i < n && table != NULL; i++) apr_store_le32(&table[i], apr_f32_bits(divisor(&view->hparams, i, n)));
    return table != NULL;
}

apr_status apr_gguf_rope_add(apr_model *view, apr_error *err)
{
    const apr_hparams *const h = &view->hparams;
    const size_t first = view->n_tensors;
    bool ok = true;

    if (apr_gguf_rope_find(view) != NULL) return APR_OK;
    if (has_divisors(&h->rope) && table_width(h) >= 2) ok = add_divisors(view, table_width(h) / 2);
    if (h->rope.kind == APR_ROPE_LONGROPE && h->rope.long_factor != NULL && h->rope.short_factor != NULL && h->rope.n_factors > 0)
        ok = add_factors(view, long_factors, h->rope.long_factor, h->rope.n_factors) &&
             add_factors(view, short_factors, h->rope.short_factor, h->rope.n_factors);
    if (!ok) return apr_no_memory(err, "rotary divisors");
    for (size_t i = first; i < view->n_tensors; i++) APR_TRY(apr_tensor_size(&view->tensors[i], view->path, err));
    return APR_OK;
}
