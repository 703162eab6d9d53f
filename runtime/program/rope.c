/* rope.c - rotary frequencies in transformers' float32 arithmetic, with all scalings that models state. */
#include "runtime/program/emit.h"

#include <math.h>

/* 1 / theta^(2j/d); every operation is in float32 */
static float freq_of(double theta, int64_t dim, int64_t j)
{
    const float exponent = (float)(2 * j) / (float)dim;
    return 1.0f / powf((float)theta, exponent);
}

static float plain_freq(const apr_rope_facts *f, int64_t j) { return freq_of(f->theta, f->rotary_dim, j); }

/* Input and output of a scaling function. The arena holds a second set of frequencies. */
typedef struct filling {
    const apr_rope_facts *facts;
    apr_rope_table *table;
    float *freqs; /* [n_freqs] */
    apr_arena *arena;
    const char *where;
    apr_error *err;
} filling;

static apr_status fill_plain(const filling *f)
{
    for (int64_t j = 0; j < f->table->n_freqs; j++) f->freqs[j] = plain_freq(f->facts, j);
    return APR_OK;
}

static apr_status fill_linear(const filling *f)
{
    for (int64_t j = 0; j < f->table->n_freqs; j++) f->freqs[j] = plain_freq(f->facts, j) / (float)f->facts->scaling->factor;
    return APR_OK;
}

/* Long wavelengths are stretched by the factor, short ones are kept, and those between are blended. */
static apr_status fill_llama3(const filling *f)
{
    const apr_rope_scaling *const r = f->facts->scaling;
    const float pi2 = 6.283185307179586f, context = (float)r->original_context, factor = (float)r->factor;
    const float low = (float)r->low_freq_factor, high = (float)r->high_freq_factor;

    if (!(r->low_freq_factor > 0.0 && r->high_freq_factor >= r->low_freq_factor && r->original_context > 0))
        return apr_fail(f->err, APR_E_DAMAGED,
                        "%s: rotary scaling 'llama3' needs 0 < low_freq_factor <= high_freq_factor and the original context", f->where);
    for (int64_t j = 0; j < f->table->n_freqs; j++) {
        const float freq = plain_freq(f->facts, j), wavelength = pi2 / freq, smooth = (context / wavelength - low) / (high - low);
        if (wavelength > context / low) f->freqs[j] = freq / factor;
        else if (wavelength < context / high || low == high) f->freqs[j] = freq;
        else f->freqs[j] = (1.0f - smooth) * freq / factor + smooth * freq;
    }
    return APR_OK;
}

/* The (fractional) index of the frequency that makes `turns` rotations within the original context. */
static double yarn_index(const apr_rope_facts *f, double turns, double context)
{
    return (double)f->rotary_dim * log(context / (turns * 6.283185307179586)) / (2.0 * log(f->theta));
}

/* Slow frequencies are interpolated, fast ones kept, with a linear ramp over the index between. */
static apr_status fill_yarn(const filling *f)
{
    const apr_rope_facts *const facts = f->facts;
    const apr_rope_scaling *const r = facts->scaling;
    const double context = (double)(r->original_context > 0 ? r->original_context : facts->max_position_embeddings);
    double low = yarn_index(facts, r->beta_fast > 0.0 ? r->beta_fast : 32.0, context);
    double high = yarn_index(facts, r->beta_slow > 0.0 ? r->beta_slow : 1.0, context);

    if (context <= 0.0) return apr_fail(f->err, APR_E_DAMAGED, "%s: rotary scaling 'yarn' needs the original context", f->where);
    if (!r->no_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(facts->rotary_dim - 1));
    if (low == high) high += 0.001;
    for (int64_t j = 0; j < f->table->n_freqs; j++) {
        const float kept = plain_freq(facts, j), interpolated = kept / (float)r->factor;
        const float ramp = fminf(fmaxf((float)(((double)j - low) / (high - low)), 0.0f), 1.0f);
        f->freqs[j] = interpolated * ramp + kept * (1.0f - ramp);
    }
    f->table->magnitude = (float)(r->attention_factor > 0.0 ? r->attention_factor : r->factor > 1.0 ? 0.1 * log(r->factor) + 1.0 : 1.0);
    return APR_OK;
}

/* Each frequency has a divisor, and another one for long texts. transformers switches between them while a text grows, and then rotates
 * new keys differently from cached ones. Here the planned length decides once. */
static apr_status fill_longrope(const filling *f)
{
    const apr_rope_scaling *const r = f->facts->scaling;
    const double original = (double)r->original_context;
    const double factor = r->factor > 0.0 ? r->factor : original > 0.0 ? (double)f->facts->max_position_embeddings / original : 0.0;

    if (r->n_factors != f->table->n_freqs || r->short_factor == NULL || r->long_factor == NULL || r->original_context <= 1)
        return apr_fail(f->err, APR_E_DAMAGED, "%s: rotary scaling 'longrope' needs the original context and %lld short and long factors",
                        f->where, (long long)f->table->n_freqs);
    float *const freqs = apr_arena_array(f->arena, (size_t)f->table->n_freqs, sizeof *freqs);
    if (freqs == NULL) return apr_no_memory(f->err, "the rotary frequencies");
    for (int64_t j = 0; j < f->table->n_freqs; j++) {
        f->freqs[j] = plain_freq(f->facts, j) / (float)r->short_factor[j];
        freqs[j] = plain_freq(f->facts, j) / (float)r->long_factor[j];
    }
    f->table->long_freqs = freqs;
    f->table->original_context = r->original_context;
    f->table->magnitude = (float)(r->attention_factor > 0.0 ? r->attention_factor
                                  : factor > 1.0            ? sqrt(1.0 + log(factor) / log(original))
                                                            : 1.0);
    return APR_OK;
}

/* Hunyuan's alpha: a larger base, so that all wavelengths grow. Without alpha the base depends on the length of the text, but is the plain
 * one up to max_position_embeddings: emit.c allows no more positions. */
static apr_status fill_dynamic(const filling *f)
{
    const double dim = (double)f->facts->rotary_dim, alpha = f->facts->scaling->alpha;

    if (alpha == 0.0 && f->facts->max_position_embeddings > 0) return fill_plain(f);
    if (!(alpha > 0.0) || f->facts->rotary_dim <= 2)
        return apr_fail(f->err, APR_E_UNSUPPORTED, "%s: rotary scaling 'dynamic' is supported only with an alpha, or a stated context",
                        f->where);
    const double theta = f->facts->theta * pow(alpha, dim / (dim - 2.0));
    for (int64_t j = 0; j < f->table->n_freqs; j++) f->freqs[j] = freq_of(theta, f->facts->rotary_dim, j);
    return APR_OK;
}

/* Keeps the first part of the whole head's frequencies; the others are 0. */
static apr_status fill_proportional(const filling *f)
{
    const double part = f->facts->scaling->partial_rotary_factor > 0.0 ? f->facts->scaling->partial_rotary_factor : 1.0;
    const int64_t n_turning = (int64_t)(part * (double)f->facts->rotary_dim / 2.0);

    for (int64_t j = 0; j < f->table->n_freqs; j++) f->freqs[j] = j < n_turning ? plain_freq(f->facts, j) : 0.0f;
    return APR_OK;
}

/* By apr_rope_kind. */
static const struct {
    apr_status (*fill)(const filling *f);
    bool needs_factor;
} kinds[APR_N_ROPE_KINDS] = {
    [APR_ROPE_PLAIN] = {fill_plain, false},
    [APR_ROPE_LINEAR] = {fill_linear, true},
    [APR_ROPE_LLAMA3] = {fill_llama3, true},
    [APR_ROPE_YARN] = {fill_yarn, true},
    [APR_ROPE_LONGROPE] = {fill_longrope, false},
    [APR_ROPE_DYNAMIC] = {fill_dynamic, false},
    [APR_ROPE_PROPORTIONAL] = {fill_proportional, false},
};

apr_status apr_rope_table_fill(apr_rope_table *table, const apr_rope_facts *facts, apr_arena *arena, const char *where, apr_error *err)
{
    const apr_rope_scaling *const r = facts->scaling;
    filling f = {.facts = facts, .table = table, .arena = arena, .where = where, .err = err};

    if (facts->rotary_dim <= 0 || facts->rotary_dim % 2 != 0 || !(facts->theta > 0.0))
        return apr_fail(err, APR_E_DAMAGED, "%s: %lld rotary dimensions of base %g cannot be rotated", where, (long long)facts->rotary_dim,
                        facts->theta);
    table->n_freqs = facts->rotary_dim / 2;
    table->magnitude = 1.0f;
    if (kinds[r->kind].needs_factor && !(r->factor > 0.0))
        return apr_fail(err, APR_E_DAMAGED, "%s: rotary scaling '%s' does not state a factor", where, apr_rope_names[r->kind]);
    table->freqs = f.freqs = apr_arena_array(arena, (size_t)table->n_freqs, sizeof *f.freqs);
    if (f.freqs == NULL) return apr_no_memory(err, "the rotary frequencies");
    return kinds[r->kind].fill(&f);
}

void apr_rope_frequencies(const apr_rope_table *table, const apr_tensor *divisors, int64_t n_ctx, float *freqs)
{
    const float *const chosen = table->long_freqs != NULL && n_ctx > table->original_context ? table->long_freqs : table->freqs;

    if (divisors != NULL) apr_decode_rows(divisors, 0, 1, freqs);
    for (int64_t j = 0; j < table->n_freqs; j++) freqs[j] = divisors != NULL ? chosen[j] / freqs[j] : chosen[j];
}
