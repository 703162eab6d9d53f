/* gguf_rope_tensors.c - rotary scalings that GGUF has no keys for, but tensors of divisors of the frequencies. */
#include "formats/shape/gguf_hparams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double apr_gguf_shortest_decimal(double f32)
{
    char text[32];

    for (int n_digits = 1; n_digits <= 9; n_digits++) {
        snprintf(text, sizeof text, "%.*g", n_digits, f32);
        if (strtof(text, NULL) == (float)f32) return strtod(text, NULL);
    }
    return f32; /* NaN */
}

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

void apr_gguf_rope_from_divisors(const apr_tensor *divisors, apr_hparams *h)
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

apr_status apr_gguf_rope_from_factors(const apr_tensor *short_, const apr_tensor *long_, apr_hparams *h, apr_arena *arena, apr_error *err)
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
