/* runtime/session/kept.h - evaluates the same tokens again from a later operation on, with values that an earlier evaluation kept.
 *
 * What precedes the first operation that reads a changed weight gives the same values again. Where an evaluation begins, it needs each
 * value that an earlier operation makes and a later one reads: between two layers of most models the hidden states, in a model with
 * several residual streams all of them. Then it computes the same bits as an evaluation of the whole program.
 *
 *     for each op:  apr_session_can_begin(s, op, is_needed)     the values that must be kept
 *     eval(begin = 0)                                           runs the whole program and keeps them
 *     eval(begin = op)                                          from `op` on; also in another session of the same model
 *
 * Kept values take n_tokens * (sum of their widths) * 4 bytes, in memory of the caller: layers * tokens * hidden_size * 4 bytes for most. */
#ifndef APR_RUNTIME_KEPT_H
#define APR_RUNTIME_KEPT_H

#include "runtime/session/session.h"

/* The values of one evaluation. Its tokens are the sequence from its beginning, because states are not kept. */
struct apr_kept {
    float *const *values; /* [n_values of the program] of each kept one [tokens, width], where the session computes; NULL: not kept */
    int64_t first;        /* row of the evaluation's first token there */
    size_t begin;         /* 0: all operations run, and values are stored; otherwise they are loaded, and operations from this one on run */
};

/* Can an evaluation begin with operation `op` (up to the first that makes logits)? Not if a later operation reads a state that an earlier
 * one writes, if the fused steps of a device have no boundary there, or if there are several places. is_needed[n_values]: becomes true
 * for each value that must be kept, and is not changed if the answer is no; NULL: not asked for. */
bool apr_session_can_begin(const apr_session *session, size_t op, bool *is_needed);

#endif
