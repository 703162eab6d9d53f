/* runtime/session/sample.h - draws one token from a row of logits. The same seed and logits give the same tokens on every machine.
 *
 * The steps are those of llama.cpp's default chain, in its order:
 *   penalties    for tokens among the last `repeat_last` ones of prompt and answer: a positive logit is divided by repeat_penalty,
 *                another is multiplied by it; then presence_penalty, and frequency_penalty times the count, are subtracted
 *   top-k        keeps the k most likely tokens
 *   top-p        keeps the fewest most likely tokens whose probability (at temperature 1) sums to at least top_p
 *   min-p        keeps tokens that are at least min_p times as likely as the most likely one
 *   temperature  draws from the rest with logits divided by it; 0 takes the most likely token
 * Zeros leave a step out, so a zeroed apr_sample_options is greedy. */
#ifndef APR_RUNTIME_SAMPLE_H
#define APR_RUNTIME_SAMPLE_H

#include "formats/base/status.h"
#include "kernels/topk.h"
#include "runtime/session/session.h"

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
    int64_t repeat_last; /* how many tokens penalties look back; 0: no penalties; -1: all */
} apr_sample_options;

typedef struct apr_sampler {
    apr_sample_options options;
    uint64_t state;                   /* of the random generator */
    struct apr_candidate *candidates; /* [vocab_size], NULL for greedy sampling */
    int64_t vocab_size;
    int32_t *counts; /* [vocab_size] count of each token among the last repeat_last ones; NULL: no penalties */
    int32_t *recent; /* [repeat_last] a ring of the last tokens; NULL: all tokens count */
    int64_t n_taken; /* tokens so far */
} apr_sampler;

apr_status apr_sampler_open(apr_sampler *sampler, int64_t vocab_size, const apr_sample_options *options, apr_error *err);
void apr_sampler_close(apr_sampler *sampler);

/* Counts tokens that were not drawn here, such as the prompt, for the penalties. Drawn tokens are counted automatically. */
void apr_sampler_take(apr_sampler *sampler, const int32_t *ids, size_t n_ids);

/* logits: [vocab_size]. The lowest id wins a tie. */
int32_t apr_sample(apr_sampler *sampler, const float *logits);

/* The top-k request whose result the next three functions need. */
apr_topk apr_sampler_topk_request(const apr_sampler *sampler);
/* Chooses the token that apr_sample would choose, with the same random number, from the top-k alone. False: the top-k is not enough (no
 * cut-off, penalties, too little probability, or two sums too close). No random number is used then. */
bool apr_sample_topk(apr_sampler *sampler, const apr_topk *topk, int32_t *id);

/* The same when the whole row counts. apr_sample_part returns the part of the row (kernels/topk.h) that contains the token to be drawn;
 * -1: undecided. apr_sample_within draws it from the n logits of that part; false: undecided, and no random number is used. */
int apr_sample_part(const apr_sampler *sampler, const apr_topk *topk);
bool apr_sample_within(apr_sampler *sampler, const apr_topk *topk, int part, const float *logits, int64_t n, int32_t *id);

/* Argmax: the id of the largest logit. NaN is less than every number. */
int32_t apr_argmax(const float *logits, int64_t vocab_size);

/* Chooses the next token. `topk` is the top-k of the last token, as apr_sampler_topk_request requested it. All logits are read only if the top-k
 * is not enough. */
apr_status apr_choose(apr_session *session, apr_sampler *sampler, const apr_topk *topk, int32_t *id, apr_error *err);

#endif
