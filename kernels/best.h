/* best.h - the largest of a row of logits, and what a sampler needs of the rest: one number.
 *
 * A logit and its id are one number of 64 bits, which is larger when the logit is larger or, among equal ones, the id lower; NaN is less
 * than every number, and both zeros are one. So the order is total, and a host and a device that compare these numbers choose alike. */
#ifndef APR_KERNELS_BEST_H
#define APR_KERNELS_BEST_H

#include "kernels/activation.h"

#include <stdint.h>
#include <string.h>

/* Parts of a row are so many logits, the last one what is left. */
enum { APR_MOST_BEST = 64, APR_BEST_PART = 4096, APR_MOST_PARTS = 64 };

static inline int64_t apr_best_parts(int64_t n_logits) { return (n_logits + APR_BEST_PART - 1) / APR_BEST_PART; }

typedef struct apr_best {
    int n_wanted;      /* 1 to APR_MOST_BEST */
    float temperature; /* of the sum; 0: no sum is wanted */

    int n;                       /* found: fewer than wanted where the row has no more */
    int32_t ids[APR_MOST_BEST];  /* [n] the largest first, of equal ones the lower id */
    float logits[APR_MOST_BEST]; /* [n] */
    /* Over the whole row, and of each part: exp((logit - largest) / temperature), NaN as 0. On the host in the order of the ids; a device's
     * are these to within APR_BEST_SUM_ERROR of each. */
    double sum;
    int n_parts; /* 0: no sum is wanted, or the row has more than APR_MOST_PARTS */
    double parts[APR_MOST_PARTS];
} apr_best;

/* A float32 exponential to 2 units in the last place on a device and half of one on the host: 3e-7, and sums in double. */
#define APR_BEST_SUM_ERROR 1e-6

/* Never 0, which stands for nothing: ids are below 2^31. */
APR_EVERYWHERE uint64_t apr_best_key(float logit, int64_t id)
{
    uint32_t bits;
    memcpy(&bits, &logit, sizeof bits);
    /* floats as integers of the same order: negative ones are turned around, and all lie above 0, which is NaN's */
    const uint32_t in_order = logit != logit ? 0u : logit == 0.0f ? 0x80000000u : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    return (uint64_t)in_order << 32 | (0xffffffffu - (uint32_t)id);
}

APR_EVERYWHERE int32_t apr_best_id(uint64_t key) { return (int32_t)(0xffffffffu - (uint32_t)key); }

APR_EVERYWHERE float apr_best_logit(uint64_t key)
{
    const uint32_t in_order = (uint32_t)(key >> 32), bits = (in_order >> 31) != 0 ? in_order & 0x7fffffffu : ~in_order;
    float logit;
    memcpy(&logit, &bits, sizeof logit); /* of 0: all bits, a NaN */
    return logit;
}

/* Puts n keys, the largest first, into best; those of 0 are left out. */
void apr_best_from_keys(apr_best *best, const uint64_t *keys, int n);

/* Finds what is wanted of logits[n]. */
void apr_find_best(apr_best *best, const float *logits, int64_t n);

#endif
