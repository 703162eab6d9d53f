/* topk.h - top-k of a row of logits (k = 1: argmax), and the sums that a sampler needs of the rest.
 *
 * A logit and its token id form one 64-bit key. A key is larger if the logit is larger or, for equal logits, if the id is lower. NaN is
 * less than every number, and both zeros are equal. The order is total, so host and device choose the same tokens. */
#ifndef APR_KERNELS_TOPK_H
#define APR_KERNELS_TOPK_H

#include "kernels/activation.h"

#include <stdint.h>
#include <string.h>

/* A part of a row has APR_TOPK_PART logits; the last part has the rest. The sums of at most APR_TOPK_MAX_PARTS parts are kept. */
enum { APR_TOPK_MAX = 64, APR_TOPK_PART = 4096, APR_TOPK_MAX_PARTS = 64 };

static inline int64_t apr_topk_parts(int64_t n_logits) { return (n_logits + APR_TOPK_PART - 1) / APR_TOPK_PART; }

typedef struct apr_topk {
    int n_wanted;      /* 1 to APR_TOPK_MAX */
    float temperature; /* for the sums; 0: no sums are wanted */

    int n;                      /* number found: n_wanted, or all if the row has fewer */
    int32_t ids[APR_TOPK_MAX];  /* [n] largest first; for equal logits the lower id first */
    float logits[APR_TOPK_MAX]; /* [n] */
    /* Sums of exp((logit - largest) / temperature) over the whole row, and over each part; NaN counts as 0. The host adds in the order
     * of the ids; a device's sums are within APR_TOPK_SUM_ERROR of these. */
    double sum;
    int n_parts; /* 0: no sums are wanted, or the row has more than APR_TOPK_MAX_PARTS parts */
    double parts[APR_TOPK_MAX_PARTS];
} apr_topk;

/* Relative. expf is exact to 2 ULP on a device and half an ULP on the host (3e-7 together); sums are in double. */
#define APR_TOPK_SUM_ERROR 1e-6

/* Never 0 (ids are below 2^31), so 0 can mean "none". */
APR_HOST_DEVICE_INLINE uint64_t apr_topk_key(float logit, int64_t id)
{
    uint32_t bits;
    memcpy(&bits, &logit, sizeof bits);
    /* maps floats to integers of the same order: negative floats are inverted, others get the top bit; 0 is for NaN */
    const uint32_t in_order = logit != logit ? 0u : logit == 0.0f ? 0x80000000u : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    return (uint64_t)in_order << 32 | (0xffffffffu - (uint32_t)id);
}

APR_HOST_DEVICE_INLINE int32_t apr_topk_id(uint64_t key) { return (int32_t)(0xffffffffu - (uint32_t)key); }

APR_HOST_DEVICE_INLINE float apr_topk_logit(uint64_t key)
{
    const uint32_t in_order = (uint32_t)(key >> 32), bits = (in_order >> 31) != 0 ? in_order & 0x7fffffffu : ~in_order;
    float logit;
    memcpy(&logit, &bits, sizeof logit); /* for 0: all bits set, a NaN */
    return logit;
}

/* Converts n keys, largest first, into topk; stops at a key of 0. */
void apr_topk_from_keys(apr_topk *topk, const uint64_t *keys, int n);

/* Finds the top-k of logits[n], and the sums if topk->temperature > 0. */
void apr_topk_find(apr_topk *topk, const float *logits, int64_t n);

#endif
