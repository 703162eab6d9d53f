/* gguf_rope.c - rotary scaling in GGUF: in keys, and in tensors of divisors of the frequencies. */
#include "formats/shape/gguf_hparams.h"
#include "formats/shape/gguf_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    apr_rope_kind kind;
    const char *name;
} rope_names[] = {{APR_ROPE_LINEAR, "linear"}, {APR_ROPE_YARN, "yarn"}, {APR_ROPE_LONGROPE, "longrope"}};

/* --- out of the keys --- */

double apr_gguf_shortest_decimal(double f32)
{
    char text[32];

    for (int n_digits = 1; n_digits <= 9; n_digits++) {
        snprintf(text, sizeof text, "%.*g", n_digits, f32);
        if (strtof(text, NULL) == (float)f32) return strtod(text, NULL);
    }
    return f32; /* NaN */
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

/* The key belongs to the score scale of latent attention (MLA). It gives mscale = mscale_all_dim: cosines and sines are not scaled. */
static void read_log_multiplier(apr_key_reader *r, apr_rope_scaling *rope)
{
    double value = 0;

    if (r->facts->yarn_log_unit == 0 || !apr_gguf_key_real(r, "rope.scaling.yarn_log_multiplier", &value)) return;
    rope->mscale = rope->mscale_all_dim = apr_gguf_shortest_decimal((double)(float)(value / r->facts->yarn_log_unit));
    if (rope->attention_factor == 0 && rope->mscale != 0) rope->attention_factor = 1;
}

/* The factor that llama.cpp multiplies by rope.scaling.attn_factor: YaRN's usual one, or 1 if there is a log multiplier. */
static double usual_factor(const apr_rope_scaling *rope, bool has_multiplier)
{
    return !has_multiplier && rope->factor > 1 ? 0.1 * log(rope->factor) + 1.0 : 1.0;
}

/* The attention factor is the key times the usual factor, as the shortest decimal that is written as this key. A key of 1 adds nothing. */
static void read_attn_factor(apr_key_reader *r, apr_rope_scaling *rope)
{
    const double usual = usual_factor(rope, r->facts->yarn_log_unit != 0 && rope->mscale_all_dim != 0);
    double times = 0;
    char text[32];

    if (!apr_gguf_key_real(r, "rope.scaling.attn_factor", &times) || !(times > 0) || (float)times == 1.0f) return;
    rope->attention_factor = times * usual;
    for (int n_digits = 1; n_digits <= 9; n_digits++) {
        snprintf(text, sizeof text, "%.*g", n_digits, times * usual);
        if ((float)(strtod(text, NULL) / usual) != (float)times) continue;
        rope->attention_factor = strtod(text, NULL);
        return;
    }
}

/* phi3 has no rope.scaling.type; its factors are tensors. */
static void read_longrope(apr_key_reader *r, apr_hparams *h)
{
    apr_rope_scaling *const rope = &h->rope;

    if (!apr_gguf_key_real(r, "rope.scaling.attn_factor", &rope->attention_factor)) return;
    rope->kind = APR_ROPE_LONGROPE;
    apr_gguf_key_int(r, "rope.scaling.original_context_length", &rope->original_context);
    if (near(rope->attention_factor, apr_gguf_longrope_factor(h))) rope->attention_factor = 0; /* follows from the rest */
}

void apr_gguf_read_rope(apr_key_reader *r, apr_hparams *h)
{
    apr_rope_scaling *const rope = &h->rope;
    apr_str type = {0};

    apr_gguf_key(r, "rope.scaling.type");
    if (!apr_kv_get_string(r->kv, r->key, &type)) {
        if (r->facts->has_longrope) read_longrope(r, h);
        return;
    }
    for (size_t i = 0; i < sizeof rope_names / sizeof *rope_names; i++)
        if (apr_str_is(type, rope_names[i].name)) rope->kind = rope_names[i].kind;
    if (rope->kind == APR_ROPE_PLAIN) return; /* "none" */
    apr_gguf_key_real(r, "rope.scaling.factor", &rope->factor);
    apr_gguf_key_int(r, "rope.scaling.original_context_length", &rope->original_context);
    apr_gguf_key_real(r, "rope.scaling.yarn_beta_fast", &rope->beta_fast);
    apr_gguf_key_real(r, "rope.scaling.yarn_beta_slow", &rope->beta_slow);
    if (rope->kind != APR_ROPE_YARN) return;
    apr_gguf_key_real(r, "rope.scaling.yarn_attn_factor", &rope->attention_factor); /* the whole factor, as older aprkits wrote it */
    rope->no_truncate = r->facts->no_truncate;
    read_log_multiplier(r, rope);
    read_attn_factor(r, rope);
}

/* --- into the keys --- */

static apr_status put_real(const apr_key_writer *w, const char *name, double value)
{
    return value != 0 ? apr_gguf_put_real(w, name, value) : APR_OK;
}

/* Theta is written with alpha applied, so no scaling is left. */
static apr_status put_unscaled(const apr_key_writer *w)
{
    APR_TRY(apr_gguf_put_text(w, "rope.scaling.type", "none"));
    return apr_gguf_put_real(w, "rope.scaling.factor", 1);
}

apr_status apr_gguf_put_rope(const apr_key_writer *w)
{
    const apr_rope_scaling *const rope = &w->h->rope;
    const char *name = NULL;

    if (rope->kind == APR_ROPE_DYNAMIC && rope->alpha > 0) return put_unscaled(w);
    for (size_t i = 0; i < sizeof rope_names / sizeof *rope_names; i++)
        if (rope_names[i].kind == rope->kind) name = rope_names[i].name;
    if (name == NULL) return APR_OK; /* llama 3's and gemma 4's are in the tensor rope_freqs.weight */
    APR_TRY(apr_gguf_put_text(w, "rope.scaling.type", name));
    APR_TRY(put_real(w, "rope.scaling.factor", rope->factor));
    if (rope->original_context != 0) APR_TRY(apr_gguf_put_int(w, "rope.scaling.original_context_length", rope->original_context));
    const double usual = usual_factor(rope, w->facts->yarn_log_unit != 0 && rope->mscale_all_dim != 0);
    if (rope->kind != APR_ROPE_YARN) APR_TRY(put_real(w, "rope.scaling.attn_factor", rope->attention_factor));
    else if (!near(rope->attention_factor, usual)) APR_TRY(put_real(w, "rope.scaling.attn_factor", rope->attention_factor / usual));
    APR_TRY(put_real(w, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    return put_real(w, "rope.scaling.yarn_beta_slow", rope->beta_slow);
}

/* --- tensors --- */

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
