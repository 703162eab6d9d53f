/* sequence_check.h - sequences through one session: each has the numbers that it has alone, to the last bit, whatever the others are. */
#ifndef APR_TESTS_SEQUENCE_CHECK_H
#define APR_TESTS_SEQUENCE_CHECK_H

#include "runtime/session/session.h"

/* More than one product takes at once; a prompt is evaluated in pieces, or its last CHECK_STEPPED tokens as rows of steps. */
enum { CHECK_SEQUENCES = 19, CHECK_STEPS = 4, CHECK_PIECE = APR_PAGE_CELLS, CHECK_STEPPED = 24 };

typedef struct sequence_check {
    const apr_model *model;
    const char *what;
    const apr_backend *backend; /* NULL: the host's */
    const apr_cuda_api *cuda;   /* NULL: the host */
    int64_t stretch;            /* prompts are 1 to 127 tokens, times this; 0: once */
    apr_dtype kv_dtype;
    bool is_exact;
    bool counts_memory;                                /* it is held against the plan */
    void (*of_family)(const struct sequence_check *c); /* for check_family; NULL: check_sequences */
} sequence_check;

int32_t check_id(const apr_model *model, int64_t sequence, int64_t position);
/* Of different lengths: within a page, over its end, longer than a window and a chunk. */
int64_t check_prompt(const sequence_check *c, int64_t sequence);
int64_t check_ctx(const sequence_check *c);

apr_session *check_open(const sequence_check *c, int64_t n_sequences, int64_t kv_cells);
/* Positions [first, end) of a sequence into a slot of the session, in pieces that are counted from its beginning; logits: NULL, or [vocab]
 * of the last. */
void check_evaluate(const sequence_check *c, apr_session *s, int64_t slot, int64_t sequence, int64_t first, int64_t end, float *logits);

/* Of CHECK_SEQUENCES sequences alone, and among others that join in the order of `stride` and leave one by one: the prompt's logits and
 * those of CHECK_STEPS tokens, compared; and where the ends of prompts may be rows of steps, so in steps of 2 and of many. Fails the test
 * with what differs. */
void check_sequences(const sequence_check *c, int64_t stride);

/* The session's memory is the plan's, where it is counted. */
void check_memory(const sequence_check *c, const apr_session *s);

/* How far logits of these among others are from `reference`'s, where each is alone: the largest difference, relative to the largest logit.
 */
double check_distance(const sequence_check *c, const sequence_check *reference);

/* A common prefix of two is shared, in the same memory; anywhere: not only at the position of the first. */
void check_sharing(const sequence_check *c, bool anywhere);

/* The text that the model writes itself is the same for 1, 3, 8 and 32 windows at once. */
void check_own_text(const sequence_check *c, int64_t window, int64_t n_windows);

/* check_sequences of each way to mix tokens, and each feed-forward, of a family, a layer each; answers how many there were. `sizes` NULL:
 * those of program_model_sizes. */
int check_family(const sequence_check *c, const char *architecture, apr_dtype dtype, void (*sizes)(apr_hparams *h));

#endif
