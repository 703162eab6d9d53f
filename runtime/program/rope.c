/* rope.c - rotary frequencies in the float32 arithmetic of transformers, with the scalings that models state. */
#include "runtime/program/emit.h"

#include <math.h>

/* 1 / theta^(2j/d), in float32 all the way */
static float plain_freq(const apr_hparams *h, int64_t j)
{
    const float exponent = (float)(2 * j) / (float)h->rotary_dim;
    return 1.0f / powf((float)h->rope_theta, exponent);
}

static apr_status fill_plain(apr_rope_table *table, float *freqs, const apr_hparams *h)
{
    for (int64_t j = 0; j < table->n_freqs; j++) freqs[j] = plain_freq(h, j);
    return APR_OK;
}

static apr_status fill_linear(apr_rope_table *table, float *freqs, const apr_hparams *h)
{
    for (int64_t j = 0; j < table->n_freqs; j++) freqs[j] = plain_freq(h, j) / (float)h->rope.factor;
    return APR_OK;
}

/* Long waves are stretched by the factor, short ones are left alone, those between are blended. */
static apr_status fill_llama3(apr_rope_table *table, float *freqs, const apr_hparams *h)
{
    const apr_rope_scaling *const r = &h->rope;
    const float pi2 = 6.283185307179586f, context = (float)r->original_context, factor = (float)r->factor;
    const float low = (float)r->low_freq_factor, high = (float)r->high_freq_factor;

    for (int64_t j = 0; j < table->n_freqs; j++) {
        const float freq = plain_freq(h, j), wavelength = pi2 / freq, smooth = (context / wavelength - low) / (high - low);
        if (wavelength > context / low) freqs[j] = freq / factor;
        else if (wavelength < context / high) freqs[j] = freq;
        else freqs[j] = (1.0f - smooth) * freq / factor + smooth * freq;
    }
    return APR_OK;
}

/* The (fractional) index of the frequency that turns `turns` times within the original context. */
static double yarn_index(const apr_hparams *h, double turns, double context)
{
    return (double)h->rotary_dim * log(context / (turns * 6.283185307179586)) / (2.0 * log(h->rope_theta));
}

/* Slow frequencies are interpolated, fast ones kept, with a linear ramp over the index between. */
static apr_status fill_yarn(apr_rope_table *table, float *freqs, const apr_hparams *h)
{
    const apr_rope_scaling *const r = &h->rope;
    const double context = (double)(r->original_context > 0 ? r->original_context : h->max_position_embeddings);
    double low = yarn_index(h, r->beta_fast > 0.0 ? r->beta_fast : 32.0, context);
    double high = yarn_index(h, r->beta_slow > 0.0 ? r->beta_slow : 1.0, context);

    if (!r->no_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(h->rotary_dim - 1));
    if (low == high) high += 0.001;
    for (int64_t j = 0; j < table->n_freqs; j++) {
        const float kept = plain_freq(h, j), interpolated = kept / (float)r->factor;
        const float ramp = fminf(fmaxf((float)(((double)j - low) / (high - low)), 0.0f), 1.0f);
        freqs[j] = interpolated * ramp + kept * (1.0f - ramp);
    }
    table->magnitude = (float)(r->attention_factor > 0.0 ? r->attention_factor : r->factor > 1.0 ? 0.1 * log(r->factor) + 1.0 : 1.0);
    return APR_OK;
}

/* By apr_rope_kind; NULL: not supported. */
static const struct {
    const char *name;
    apr_status (*fill)(apr_rope_table *table, float *freqs, const apr_hparams *h);
} kinds[] = {
    [APR_ROPE_PLAIN] = {"default", fill_plain}, [APR_ROPE_LINEAR] = {"linear", fill_linear}, [APR_ROPE_LLAMA3] = {"llama3", fill_llama3},
    [APR_ROPE_YARN] = {"yarn", fill_yarn},      [APR_ROPE_LONGROPE] = {"longrope", NULL},    [APR_ROPE_DYNAMIC] = {"dynamic", NULL},
};

apr_status apr_rope_table_fill(apr_rope_table *table, const apr_hparams *h, apr_arena *arena, apr_error *err)
{
    const apr_rope_scaling *const r = &h->rope;

    table->n_freqs = h->rotary_dim / 2;
    table->magnitude = 1.0f;
    if (kinds[r->kind].fill == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: rotary scaling '%s' is not supported; default, linear, llama3 and yarn are",
                        h->architecture, kinds[r->kind].name);
    if (r->kind != APR_ROPE_PLAIN && !(r->factor > 0.0))
        return apr_fail(err, APR_E_DAMAGED, "%s: rotary scaling '%s' states no factor", h->architecture, kinds[r->kind].name);
    if (r->kind == APR_ROPE_LLAMA3 && !(r->low_freq_factor > 0.0 && r->high_freq_factor > r->low_freq_factor && r->original_context > 0))
        return apr_fail(err, APR_E_DAMAGED,
                        "%s: rotary scaling 'llama3' needs 0 < low_freq_factor < high_freq_factor and the original context",
                        h->architecture);
    if (r->kind == APR_ROPE_YARN && r->original_context <= 0 && h->max_position_embeddings <= 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: rotary scaling 'yarn' needs the original context", h->architecture);
    float *const freqs = apr_arena_array(arena, (size_t)table->n_freqs, sizeof *freqs);
    if (freqs == NULL) return apr_no_memory(err, "the rotary frequencies");
    table->freqs = freqs;
    return kinds[r->kind].fill(table, freqs, h);
}
