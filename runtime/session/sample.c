/* sample.c - penalties, top-k, top-p, min-p, temperature. */
#include "runtime/session/sample.h"

#include "formats/base/random.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct apr_candidate {
    uint64_t key; /* order key of the logit (after penalties) and id, see kernels/topk.h: larger is more likely */
    float weight; /* exp((logit - largest) / temperature) */
};

static apr_status check_options(const apr_sample_options *o, apr_error *err)
{
    if (!(o->temperature >= 0.0f && o->temperature < 1e6f) || !(o->top_p >= 0.0f && o->top_p <= 1.0f))
        return apr_fail(err, APR_E_USAGE, "the temperature must be 0 or more, and top-p between 0 and 1");
    if (o->top_k < 0 || !(o->min_p >= 0.0f && o->min_p <= 1.0f))
        return apr_fail(err, APR_E_USAGE, "top-k must be 0 or more, and min-p between 0 and 1");
    if (!(o->repeat_penalty >= 0.0f && o->repeat_penalty < 1e6f) || !isfinite(o->presence_penalty) || !isfinite(o->frequency_penalty))
        return apr_fail(err, APR_E_USAGE, "the repeat penalty must be 0 or more, and the other penalties numbers");
    if (o->repeat_last < -1 || o->repeat_last > APR_MOST_REPEAT_LAST)
        return apr_fail(err, APR_E_USAGE, "penalties look back at %d tokens at most, or at all with -1", APR_MOST_REPEAT_LAST);
    return APR_OK;
}

static bool has_penalties(const apr_sample_options *o)
{
    const bool repeats = o->repeat_penalty != 0.0f && o->repeat_penalty != 1.0f;
    return o->repeat_last != 0 && (repeats || o->presence_penalty != 0.0f || o->frequency_penalty != 0.0f);
}

apr_status apr_sampler_open(apr_sampler *s, int64_t vocab_size, const apr_sample_options *options, apr_error *err)
{
    *s = (apr_sampler){.options = *options, .state = options->seed, .vocab_size = vocab_size};
    APR_TRY(check_options(options, err));
    const bool penalizes = has_penalties(options), has_ring = penalizes && options->repeat_last > 0;
    if (s->options.repeat_penalty == 0.0f) s->options.repeat_penalty = 1.0f;
    if (options->temperature > 0.0f) s->candidates = malloc((size_t)vocab_size * sizeof *s->candidates);
    if (penalizes) s->counts = calloc((size_t)vocab_size, sizeof *s->counts);
    if (has_ring) s->recent = malloc((size_t)options->repeat_last * sizeof *s->recent);
    const bool has_memory =
        (options->temperature == 0.0f || s->candidates != NULL) && (!penalizes || s->counts != NULL) && (!has_ring || s->recent != NULL);
    return has_memory ? APR_OK : apr_no_memory(err, "the sampler");
}

void apr_sampler_close(apr_sampler *s)
{
    free(s->candidates);
    free(s->counts);
    free(s->recent);
    *s = (apr_sampler){0};
}

int32_t apr_argmax(const float *logits, int64_t vocab_size)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab_size; i++)
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i]))) best = i;
    return (int32_t)best;
}

/* --- penalties --- */

static void take(apr_sampler *s, int32_t id)
{
    if (s->counts == NULL || id < 0 || id >= s->vocab_size) return;
    s->counts[id]++;
    if (s->recent != NULL) {
        int32_t *const oldest = &s->recent[s->n_taken % s->options.repeat_last];
        if (s->n_taken >= s->options.repeat_last) s->counts[*oldest]--;
        *oldest = id;
    }
    s->n_taken++;
}

void apr_sampler_take(apr_sampler *s, const int32_t *ids, size_t n_ids)
{
    for (size_t i = 0; i < n_ids; i++) take(s, ids[i]);
}

static float penalized(const apr_sampler *s, const float *logits, int64_t id)
{
    const apr_sample_options *const o = &s->options;
    const int32_t n = s->counts != NULL ? s->counts[id] : 0;
    const float logit = logits[id];

    if (n == 0) return logit;
    return (logit > 0.0f ? logit / o->repeat_penalty : logit * o->repeat_penalty) - ((float)n * o->frequency_penalty + o->presence_penalty);
}

static int32_t argmax(const apr_sampler *s, const float *logits)
{
    int64_t best = 0;

    if (s->counts == NULL) return apr_argmax(logits, s->vocab_size);
    for (int64_t i = 1; i < s->vocab_size; i++)
        if (apr_topk_key(penalized(s, logits, i), i) > apr_topk_key(penalized(s, logits, best), best)) best = i;
    return (int32_t)best;
}

/* --- candidates that remain after top-k, top-p and min-p --- */

static bool has_top_k(const apr_sampler *s) { return s->options.top_k > 0 && s->options.top_k < s->vocab_size; }
static bool has_top_p(const apr_sampler *s) { return s->options.top_p > 0.0f && s->options.top_p < 1.0f; }
static bool cuts_off(const apr_sampler *s) { return has_top_k(s) || has_top_p(s) || s->options.min_p > 0.0f; }

/* The token's probability relative to the most likely token. */
static float weight_at(float logit, float largest, float temperature)
{
    const float weight = expf((logit - largest) / temperature);
    return isnan(weight) ? 0.0f : weight;
}

static float weight_of(const apr_sampler *s, float logit, float largest) { return weight_at(logit, largest, s->options.temperature); }

/* Most likely first; lower ids first among equals. */
static int by_key(const void *a, const void *b)
{
    const struct apr_candidate *const x = a, *const y = b;
    return x->key > y->key ? -1 : x->key < y->key;
}

/* Restores the heap (least likely first) after heap[0] has changed. */
static void sift_down(struct apr_candidate *heap, int64_t n)
{
    const struct apr_candidate sifted = heap[0];
    int64_t at = 0;

    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= sifted.key) break;
        heap[at] = heap[child];
    }
    heap[at] = sifted;
}

/* The k most likely tokens of the row, most likely first. */
static void find_top_k(const apr_sampler *s, const float *logits, int64_t k)
{
    struct apr_candidate *const heap = s->candidates;

    for (int64_t i = 0; i < k; i++) heap[i] = (struct apr_candidate){.key = apr_topk_key(penalized(s, logits, i), i)};
    qsort(heap, (size_t)k, sizeof *heap, by_key);
    for (int64_t i = 0; i < k / 2; i++) { /* in ascending order it is a heap */
        const struct apr_candidate last = heap[k - 1 - i];
        heap[k - 1 - i] = heap[i];
        heap[i] = last;
    }
    for (int64_t i = k; i < s->vocab_size; i++) {
        const uint64_t key = apr_topk_key(penalized(s, logits, i), i);
        if (key <= heap[0].key) continue;
        heap[0].key = key;
        sift_down(heap, k);
    }
    qsort(heap, (size_t)k, sizeof *heap, by_key);
}

/* Sets the candidates' weights at a temperature, from the logits in their keys. Returns the sum. */
static double set_weights(struct apr_candidate *candidates, int64_t n, float temperature)
{
    const float largest = n > 0 ? apr_topk_logit(candidates[0].key) : 0.0f;
    double total = 0.0;

    for (int64_t i = 0; i < n; i++) {
        candidates[i].weight = weight_at(apr_topk_logit(candidates[i].key), largest, temperature);
        total += (double)candidates[i].weight;
    }
    return total;
}

/* How many of n candidates, most likely first, are needed for a sum of `least`; n if all are less. *kept is their sum. */
static int64_t count_kept(const struct apr_candidate *candidates, int64_t n, double least, double *kept)
{
    int64_t i = 0;
    for (*kept = 0.0; i < n && *kept < least; i++) *kept += (double)candidates[i].weight;
    return i;
}

static int64_t count_likely(const apr_sampler *s, const struct apr_candidate *candidates, int64_t n)
{
    int64_t i = 0;
    while (i < n && candidates[i].weight >= s->options.min_p) i++;
    return i;
}

/* Makes the whole row candidates, in the order of ids, with weights at that temperature. Returns their sum. */
static double set_row_weights(const apr_sampler *s, const float *logits, float largest, float temperature)
{
    double total = 0.0;

    for (int64_t i = 0; i < s->vocab_size; i++) {
        const float logit = penalized(s, logits, i);
        s->candidates[i] = (struct apr_candidate){apr_topk_key(logit, i), weight_at(logit, largest, temperature)};
        total += (double)s->candidates[i].weight;
    }
    return total;
}

/* Applies top-k, top-p and min-p; the first n candidates remain. */
static int64_t narrow(const apr_sampler *s, const float *logits, float largest)
{
    int64_t n = s->vocab_size;
    double total, kept;

    if (has_top_k(s)) {
        n = s->options.top_k;
        find_top_k(s, logits, n);
        total = set_weights(s->candidates, n, 1.0f);
    } else {
        total = set_row_weights(s, logits, largest, 1.0f);
        qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_key);
    }
    if (has_top_p(s)) n = count_kept(s->candidates, n, (double)s->options.top_p * total, &kept);
    return count_likely(s, s->candidates, n);
}

/* --- drawing --- */

/* Draws one of n candidates with that total weight. -1: rounding exceeded the total, or no weight is finite. */
static int32_t draw(apr_sampler *s, const struct apr_candidate *candidates, int64_t n, double total)
{
    double left = (double)(apr_random(&s->state) >> 11) * 0x1p-53 * total;
    for (int64_t i = 0; i < n; i++) {
        left -= (double)candidates[i].weight;
        if (left < 0.0) return apr_topk_id(candidates[i].key);
    }
    return -1;
}

/* Draws one of the remaining candidates, which are sorted. */
static int32_t draw_narrowed(apr_sampler *s, struct apr_candidate *candidates, int64_t n)
{
    const double total = set_weights(candidates, n, s->options.temperature);
    return draw(s, candidates, n, total);
}

static int32_t choose(apr_sampler *s, const float *logits)
{
    const int32_t first = argmax(s, logits);
    int32_t drawn;

    if (s->options.temperature == 0.0f) return first;
    const float largest = penalized(s, logits, first);
    if (cuts_off(s)) {
        drawn = draw_narrowed(s, s->candidates, narrow(s, logits, largest));
    } else {
        const double total = set_row_weights(s, logits, largest, s->options.temperature);
        drawn = draw(s, s->candidates, s->vocab_size, total);
    }
    return drawn >= 0 ? drawn : first;
}

int32_t apr_sample(apr_sampler *s, const float *logits)
{
    const int32_t id = choose(s, logits);
    take(s, id);
    return id;
}

/* --- the top-k request --- */

apr_topk apr_sampler_topk_request(const apr_sampler *s)
{
    if (s->options.temperature == 0.0f || s->counts != NULL) return (apr_topk){.n_wanted = 1};
    if (!cuts_off(s)) return (apr_topk){.n_wanted = 1, .temperature = s->options.temperature};
    if (has_top_k(s)) return (apr_topk){.n_wanted = s->options.top_k <= APR_TOPK_MAX ? (int)s->options.top_k : 1};
    return (apr_topk){.n_wanted = APR_TOPK_MAX, .temperature = has_top_p(s) ? 1.0f : 0.0f};
}

/* --- drawing from a part of the row --- */

/* Bounds of a partial sum of the row. */
typedef struct bounds {
    double least, most;
} bounds;

static bounds bounds_of(double sum) { return (bounds){sum * (1.0 - 1.5 * APR_TOPK_SUM_ERROR), sum * (1.0 + 1.5 * APR_TOPK_SUM_ERROR)}; }

/* The partial sum at which the next token will be drawn. Does not advance the generator. */
static bounds next_draw(const apr_sampler *s, const apr_topk *topk)
{
    uint64_t state = s->state;
    return bounds_of((double)(apr_random(&state) >> 11) * 0x1p-53 * topk->sum);
}

static bounds sum_before(const apr_topk *topk, int part)
{
    double sum = 0.0;
    for (int i = 0; i < part; i++) sum += topk->parts[i];
    return bounds_of(sum);
}

int apr_sample_part(const apr_sampler *s, const apr_topk *topk)
{
    if (s->options.temperature == 0.0f || s->counts != NULL || cuts_off(s) || topk->n < 1 || !isfinite(topk->logits[0])) return -1;
    const bounds drawn = next_draw(s, topk);
    for (int part = 0; part < topk->n_parts; part++)
        if (sum_before(topk, part + 1).least > drawn.most) return sum_before(topk, part).most < drawn.least ? part : -1;
    return -1;
}

bool apr_sample_within(apr_sampler *s, const apr_topk *topk, int part, const float *logits, int64_t n, int32_t *id)
{
    const bounds drawn = next_draw(s, topk), before = sum_before(topk, part);
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        sum += (double)weight_of(s, logits[i], topk->logits[0]);
        if (before.most + sum < drawn.least) continue;
        if (before.least + sum <= drawn.most) return false; /* this token or the next: undecided */
        *id = (int32_t)(part * APR_TOPK_PART + i);
        apr_random(&s->state);
        return true;
    }
    return false;
}

/* --- drawing from the top-k --- */

/* How many of the n top candidates remain; -1 if the rest of the row could change that. is_all: n is the whole row. total: the sum for
 * top-p, to within the relative `error`. */
static int64_t count_left(const apr_sampler *s, const struct apr_candidate *candidates, int64_t n, bool is_all, double total, double error)
{
    const int64_t n_likely = s->options.min_p > 0.0f ? count_likely(s, candidates, n) : n;
    const bool is_likely_sure = n_likely < n || is_all;
    const double share = (double)s->options.top_p * total, most = share * (1.0 + error);
    double kept;

    if (!has_top_p(s)) return is_likely_sure ? n_likely : -1;
    const int64_t at_least = count_kept(candidates, n, share * (1.0 - error), &kept);
    if (is_likely_sure && n_likely <= at_least) return n_likely;
    const int64_t at_most = count_kept(candidates, n, most, &kept);
    if (at_least != at_most || kept < most) return -1;
    return n_likely < at_least ? n_likely : at_least;
}

bool apr_sample_topk(apr_sampler *s, const apr_topk *topk, int32_t *id)
{
    struct apr_candidate candidates[APR_TOPK_MAX];
    int64_t n = topk->n;

    if (topk->n < 1 || topk->n_wanted < 1 || s->counts != NULL) return false;
    *id = topk->ids[0];
    if (s->options.temperature == 0.0f) return true;
    if (!cuts_off(s) || !isfinite(topk->logits[0]) || (has_top_k(s) && n < s->options.top_k)) return false;
    for (int i = 0; i < topk->n; i++) candidates[i].key = apr_topk_key(topk->logits[i], topk->ids[i]);
    if (has_top_k(s)) n = s->options.top_k;
    const double total = set_weights(candidates, n, 1.0f);
    n = has_top_k(s) ? count_left(s, candidates, n, true, total, 0.0)
                     : count_left(s, candidates, n, n == s->vocab_size, topk->sum, APR_TOPK_SUM_ERROR);
    if (n < 0) return false;
    const int32_t drawn = draw_narrowed(s, candidates, n);
    if (drawn >= 0) *id = drawn;
    return true;
}

/* --- the next token of a session --- */

/* Draws from one part of the row, if the sums of the parts decide which part it is. */
static apr_status choose_within(apr_session *session, apr_sampler *sampler, const apr_topk *topk, int32_t *id, bool *chosen, apr_error *err)
{
    const int part = apr_sample_part(sampler, topk);
    const int64_t first = (int64_t)part * APR_TOPK_PART, left = apr_session_program(session)->vocab_size - first;
    const int64_t n = left < APR_TOPK_PART ? left : (int64_t)APR_TOPK_PART;
    float logits[APR_TOPK_PART];

    *chosen = false;
    if (part < 0) return APR_OK;
    APR_TRY(apr_session_read_some_logits(session, first, n, logits, err));
    *chosen = apr_sample_within(sampler, topk, part, logits, n, id);
    return APR_OK;
}

apr_status apr_choose(apr_session *session, apr_sampler *sampler, const apr_topk *topk, int32_t *id, apr_error *err)
{
    bool chosen = apr_sample_topk(sampler, topk, id);

    if (!chosen) APR_TRY(choose_within(session, sampler, topk, id, &chosen, err));
    if (chosen) return APR_OK;
    APR_TRY(apr_session_read_logits(session, err));
    *id = apr_sample(sampler, apr_session_logits(session));
    return APR_OK;
}
