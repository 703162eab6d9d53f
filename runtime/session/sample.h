/* runtime/session/sample.h - one token out of a row of logits. The same seed and logits give the same tokens, everywhere.
 *
 * The steps are those of llama.cpp's default chain, in its order:
 *   penalties    of tokens among the last `repeat_last` ones, prompt and answer: a positive logit is divided by repeat_penalty, another one
 *                multiplied with it; then presence_penalty, and frequency_penalty for each time, are subtracted
 *   top-k        the k likeliest tokens
 *   top-p        of these the fewest likeliest that have this share of their probability (at temperature 1)
 *   min-p        of these the ones that are at least so likely in proportion to the likeliest
 *   temperature  what is left is drawn from with logits divided by it; 0 takes the likeliest
 * Zeros leave a step out, so a zeroed apr_sample_options is greedy. */
#ifndef APR_RUNTIME_SAMPLE_H
#define APR_RUNTIME_SAMPLE_H

#include "formats/base/status.h"
#include "kernels/best.h"

#include <stdbool.h>
#include <stdint.h>

enum { APR_MOST_REPEAT_LAST = 1 << 20 };

typedef struct apr_sample_options {
    float temperature; /* 0: the most likely token */
    float top_p;       /* 0 or 1: all */
    uint64_t seed;
    int64_t top_k; /* 0: all */
    float min_p;   /* 0: all */
    float repeat_penalty /* 0 or 1: none */, presence_penalty, frequency_penalty;
    int64_t repeat_last; /* tokens that penalties look back at; 0: no penalties; -1: all there are */
} apr_sample_options;

typedef struct apr_sampler {
    apr_sample_options options;
    uint64_t state;                   /* of the generator */
    struct apr_candidate *candidates; /* [vocab_size], NULL for greedy sampling */
    int64_t vocab_size;
    int32_t *counts; /* [vocab_size] how often a token is among the last ones; NULL: there are no penalties */
    int32_t *recent; /* [repeat_last] these, in a ring; NULL: all count */
    int64_t n_taken; /* tokens so far */
} apr_sampler;

apr_status apr_sampler_open(apr_sampler *sampler, int64_t vocab_size, const apr_sample_options *options, apr_error *err);
void apr_sampler_close(apr_sampler *sampler);

/* Tokens that stand before those that will be drawn: the prompt. Penalties count them; a token that is drawn is counted by itself. */
void apr_sampler_take(apr_sampler *sampler, const int32_t *ids, size_t n_ids);

/* logits: [vocab_size]. The lowest id wins a tie. */
int32_t apr_sample(apr_sampler *sampler, const float *logits);

/* What the next three need of a row. */
apr_best apr_sampler_wish(const apr_sampler *sampler);
/* The token that apr_sample would choose, out of the likeliest ones alone, with the same random number. False: it depends on others (all
 * count, there are penalties, or the likeliest are not likely enough, or two sums are too close to tell); no random number is drawn then. */
bool apr_sample_best(apr_sampler *sampler, const apr_best *best, int32_t *id);

/* The same where the whole row counts: in which part of it (kernels/best.h) the token lies that would be drawn; -1: that cannot be told.
 * Then the token, out of the logits of that part, n of them; false: it cannot be told, and no random number was drawn. */
int apr_sample_part(const apr_sampler *sampler, const apr_best *best);
bool apr_sample_within(apr_sampler *sampler, const apr_best *best, int part, const float *logits, int64_t n, int32_t *id);

/* The largest logit's id; NaN loses against every number. */
int32_t apr_greedy(const float *logits, int64_t vocab_size);

#endif
