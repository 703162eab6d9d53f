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

/* How likely a token is, the likeliest being 1. */
static float weight_of(const apr_sampler *s, float logit, float largest)
{
    const float weight = expf((logit - largest) / s->options.temperature);
    return isnan(weight) ? 0.0f : weight;
}

static bool cuts_off(const apr_sampler *s) { return s->options.top_p > 0.0f && s->options.top_p < 1.0f; }

/* One of n candidates of that total; -1: all rounding went the wrong way, or nothing was finite. */
static int32_t draw(apr_sampler *s, const struct apr_candidate *candidates, int64_t n, double total)
{
    double left = (double)(apr_random(&s->state) >> 11) * 0x1p-53 * total;
    for (int64_t i = 0; i < n; i++) {
        left -= (double)candidates[i].weight;
        if (left < 0.0) return candidates[i].id;
    }
    return -1;
}

int32_t apr_sample(apr_sampler *s, const float *logits)
{
    const int32_t likeliest = apr_greedy(logits, s->vocab_size);
    if (s->options.temperature == 0.0f) return likeliest;

    const float largest = logits[likeliest];
    const bool cuts = cuts_off(s);
    double total = 0.0, kept = 0.0;
    int64_t n = s->vocab_size;

    for (int64_t i = 0; i < n; i++) {
        s->candidates[i] = (struct apr_candidate){weight_of(s, logits[i], largest), (int32_t)i};
        total += (double)s->candidates[i].weight;
    }
    if (cuts) {
        qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_weight);
        for (n = 0; n < s->vocab_size && kept < (double)s->options.top_p * total; n++) kept += (double)s->candidates[n].weight;
        total = kept;
    }
    const int32_t drawn = draw(s, s->candidates, n, total);
    return drawn >= 0 ? drawn : likeliest;
}

/* --- what is asked of a row --- */

apr_best apr_sampler_wish(const apr_sampler *s)
{
    if (s->options.temperature == 0.0f) return (apr_best){.n_wanted = 1};
    return (apr_best){.n_wanted = cuts_off(s) ? APR_MOST_BEST : 1, .temperature = s->options.temperature};
}

/* --- out of a part of the row --- */

/* Sums up to a place in the row, between which and which they lie. */
typedef struct between {
    double least, most;
} between;

static between about(double sum) { return (between){sum * (1.0 - 1.5 * APR_BEST_SUM_ERROR), sum * (1.0 + 1.5 * APR_BEST_SUM_ERROR)}; }

/* The sum at which the next token is drawn; the generator stays as it is. */
static between next_draw(const apr_sampler *s, const apr_best *best)
{
    uint64_t state = s->state;
    return about((double)(apr_random(&state) >> 11) * 0x1p-53 * best->sum);
}

static between sum_before(const apr_best *best, int part)
{
    double sum = 0.0;
    for (int i = 0; i < part; i++) sum += best->parts[i];
    return about(sum);
}

int apr_sample_part(const apr_sampler *s, const apr_best *best)
{
    if (s->options.temperature == 0.0f || cuts_off(s) || best->n < 1 || !isfinite(best->logits[0])) return -1;
    const between drawn = next_draw(s, best);
    for (int part = 0; part < best->n_parts; part++)
        if (sum_before(best, part + 1).least > drawn.most) return sum_before(best, part).most < drawn.least ? part : -1;
    return -1;
}

bool apr_sample_within(apr_sampler *s, const apr_best *best, int part, const float *logits, int64_t n, int32_t *id)
{
    const between drawn = next_draw(s, best), before = sum_before(best, part);
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        sum += (double)weight_of(s, logits[i], best->logits[0]);
        if (before.most + sum < drawn.least) continue;
        if (before.least + sum <= drawn.most) return false; /* perhaps this one, perhaps the next */
        *id = (int32_t)(part * APR_BEST_PART + i);
        apr_random(&s->state);
        return true;
    }
    return false;
}

/* --- out of the likeliest alone --- */

/* How many of n candidates, the likeliest first, come to `least` together: at most n, whatever they come to. *kept is their sum. */
static int64_t count_kept(const struct apr_candidate *candidates, int64_t n, double least, double *kept)
{
    int64_t i = 0;
    for (*kept = 0.0; i < n && *kept < least; i++) *kept += (double)candidates[i].weight;
    return i;
}

bool apr_sample_best(apr_sampler *s, const apr_best *best, int32_t *id)
{
    struct apr_candidate candidates[APR_MOST_BEST];
    double kept, kept_at_most;

    if (best->n < 1 || best->n_wanted < 1) return false;
    *id = best->ids[0];
    if (s->options.temperature == 0.0f) return true;
    if (!cuts_off(s) || !isfinite(best->logits[0])) return false;
    for (int i = 0; i < best->n; i++) candidates[i] = (struct apr_candidate){weight_of(s, best->logits[i], best->logits[0]), best->ids[i]};
    qsort(candidates, (size_t)best->n, sizeof *candidates, by_weight);
    const double least = (double)s->options.top_p * (best->sum * (1.0 - APR_BEST_SUM_ERROR)),
                 most = (double)s->options.top_p * (best->sum * (1.0 + APR_BEST_SUM_ERROR));
    const int64_t n = count_kept(candidates, best->n, least, &kept), n_at_most = count_kept(candidates, best->n, most, &kept_at_most);
    /* of tokens as likely as the last one found others may have been left out */
    const bool is_complete = best->n == s->vocab_size || candidates[n > 0 ? n - 1 : 0].weight > candidates[best->n - 1].weight;
    if (n != n_at_most || kept_at_most < most || !is_complete) return false;
    const int32_t drawn = draw(s, candidates, n, kept);
    *id = drawn >= 0 ? drawn : best->ids[0];
    return true;
}
