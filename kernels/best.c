/* best.c - top-k on the host. */
#include "kernels/best.h"

void apr_best_from_keys(apr_best *best, const uint64_t *keys, int n)
{
    best->n = 0;
    for (int i = 0; i < n && keys[i] != 0; i++) {
        best->ids[best->n] = apr_best_id(keys[i]);
        best->logits[best->n++] = apr_best_logit(keys[i]);
    }
}

/* Inserts a key into keys[n], which is sorted with the largest first; the smallest drops out. */
static void insert(uint64_t *keys, int n, uint64_t key)
{
    int at = n - 1;
    if (key <= keys[at]) return;
    for (; at > 0 && keys[at - 1] < key; at--) keys[at] = keys[at - 1];
    keys[at] = key;
}

static void add_sums(apr_best *best, const float *logits, int64_t n)
{
    best->n_parts = apr_best_parts(n) <= APR_MOST_PARTS ? (int)apr_best_parts(n) : 0;
    memset(best->parts, 0, sizeof best->parts);
    for (int64_t i = 0; i < n; i++) {
        const float exponential = expf((logits[i] - best->logits[0]) / best->temperature);
        const double weight = isnan(exponential) ? 0.0 : (double)exponential;
        best->sum += weight;
        if (best->n_parts > 0) best->parts[i / APR_BEST_PART] += weight;
    }
}

void apr_find_best(apr_best *best, const float *logits, int64_t n)
{
    uint64_t keys[APR_MOST_BEST] = {0};

    for (int64_t i = 0; i < n; i++) insert(keys, best->n_wanted, apr_best_key(logits[i], i));
    apr_best_from_keys(best, keys, best->n_wanted);
    best->sum = 0.0;
    best->n_parts = 0;
    if (best->temperature > 0.0f && best->n > 0) add_sums(best, logits, n);
}
