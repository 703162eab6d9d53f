/* runtime/session/sample.h - one token out of a row of logits. The same seed and logits give the same tokens, everywhere. */
#ifndef APR_RUNTIME_SAMPLE_H
#define APR_RUNTIME_SAMPLE_H

#include "formats/base/status.h"
#include "kernels/best.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct apr_sample_options {
    float temperature; /* 0: the most likely token */
    float top_p;       /* the smallest set of tokens with this much probability; 0 or 1: all */
    uint64_t seed;
} apr_sample_options;

typedef struct apr_sampler {
    apr_sample_options options;
    uint64_t state;                   /* of the generator */
    struct apr_candidate *candidates; /* [vocab_size], NULL for greedy sampling */
    int64_t vocab_size;
} apr_sampler;

apr_status apr_sampler_open(apr_sampler *sampler, int64_t vocab_size, const apr_sample_options *options, apr_error *err);
void apr_sampler_close(apr_sampler *sampler);

/* logits: [vocab_size]. The lowest id wins a tie. */
int32_t apr_sample(apr_sampler *sampler, const float *logits);

/* What the next three need of a row. */
apr_best apr_sampler_wish(const apr_sampler *sampler);
/* The token that apr_sample would choose, out of the likeliest ones alone, with the same random number. False: it depends on others (all
 * count, or the likeliest are not likely enough, or two sums are too close to tell); no random number is drawn then. */
bool apr_sample_best(apr_sampler *sampler, const apr_best *best, int32_t *id);

/* The same where the whole row counts: in which part of it (kernels/best.h) the token lies that would be drawn; -1: that cannot be told.
 * Then the token, out of the logits of that part, n of them; false: it cannot be told, and no random number was drawn. */
int apr_sample_part(const apr_sampler *sampler, const apr_best *best);
bool apr_sample_within(apr_sampler *sampler, const apr_best *best, int part, const float *logits, int64_t n, int32_t *id);

/* The largest logit's id; NaN loses against every number. */
int32_t apr_greedy(const float *logits, int64_t vocab_size);

#endif
