/* sample.c - greedy, temperature, top-p. */
#include "runtime/session/sample.h"

#include "formats/base/random.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct apr_candidate {
    float weight; /* exp((logit - largest) / temperature) */
    int32_t id;
};

apr_status apr_sampler_open(apr_sampler *sampler, int64_t vocab_size, const apr_sample_options *options, apr_error *err)
{
    *sampler = (apr_sampler){.options = *options, .state = options->seed, .vocab_size = vocab_size};
    if (!(options->temperature >= 0.0f && options->temperature < 1e6f) || !(options->top_p >= 0.0f && options->top_p <= 1.0f))
        return apr_fail(err, APR_E_USAGE, "the temperature must be 0 or more, and top-p between 0 and 1");
    if (options->temperature == 0.0f) return APR_OK;
    sampler->candidates = malloc((size_t)vocab_size * sizeof *sampler->candidates);
    return sampler->candidates != NULL ? APR_OK : apr_no_memory(err, "the sampler");
}

void apr_sampler_close(apr_sampler *sampler)
{
    free(sampler->candidates);
    *sampler = (apr_sampler){0};
}

int32_t apr_greedy(const float *logits, int64_t vocab_size)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab_size; i++)
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i]))) best = i;
    return (int32_t)best;
}

/* Likely first, low ids first among equals. */
static int by_weight(const void *a, const void *b)
{
    const struct apr_candidate *const x = a, *const y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

int32_t apr_sample(apr_sampler *s, const float *logits)
{
    const int32_t likeliest = apr_greedy(logits, s->vocab_size);
    if (s->options.temperature == 0.0f) return likeliest;

    const float largest = logits[likeliest];
    const bool cuts = s->options.top_p > 0.0f && s->options.top_p < 1.0f;
    double total = 0.0, kept = 0.0;
    int64_t n = s->vocab_size;

    for (int64_t i = 0; i < n; i++) {
        const float weight = expf((logits[i] - largest) / s->options.temperature);
        s->candidates[i] = (struct apr_candidate){isnan(weight) ? 0.0f : weight, (int32_t)i};
        total += (double)s->candidates[i].weight;
    }
    if (cuts) {
        qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_weight);
        for (n = 0; n < s->vocab_size && kept < (double)s->options.top_p * total; n++) kept += (double)s->candidates[n].weight;
        total = kept;
    }
    double left = (double)(apr_random(&s->state) >> 11) * 0x1p-53 * total;
    for (int64_t i = 0; i < n; i++) {
        left -= (double)s->candidates[i].weight;
        if (left < 0.0) return s->candidates[i].id;
    }
    return likeliest; /* all rounding went the wrong way, or nothing was finite */
}
