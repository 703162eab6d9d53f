/* topk.c - top-k on the host. */
#include "kernels/topk.h"

void apr_topk_from_keys(apr_topk *topk, const uint64_t *keys, int n)
{
    topk->n = 0;
    for (int i = 0; i < n && keys[i] != 0; i++) {
        topk->ids[topk->n] = apr_topk_id(keys[i]);
        topk->logits[topk->n++] = apr_topk_logit(keys[i]);
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

static void add_sums(apr_topk *topk, const float *logits, int64_t n)
{
    topk->n_parts = apr_topk_parts(n) <= APR_TOPK_MAX_PARTS ? (int)apr_topk_parts(n) : 0;
    memset(topk->parts, 0, sizeof topk->parts);
    for (int64_t i = 0; i < n; i++) {
        const float exponential = expf((logits[i] - topk->logits[0]) / topk->temperature);
        const double weight = isnan(exponential) ? 0.0 : (double)exponential;
        topk->sum += weight;
        if (topk->n_parts > 0) topk->parts[i / APR_TOPK_PART] += weight;
    }
}

void apr_topk_find(apr_topk *topk, const float *logits, int64_t n)
{
    uint64_t keys[APR_TOPK_MAX] = {0};

    for (int64_t i = 0; i < n; i++) insert(keys, topk->n_wanted, apr_topk_key(logits[i], i));
    apr_topk_from_keys(topk, keys, topk->n_wanted);
    topk->sum = 0.0;
    topk->n_parts = 0;
    if (topk->temperature > 0.0f && topk->n > 0) add_sums(topk, logits, n);
}
