/* quant/feedback/feedback.h - a matrix into blocks of a type, rounded so that its outputs stay what they were (fidelity of W x, not of W).
 *
 * Sixteen rows at a time, each by itself, with the Hessian of the inputs (quant/feedback/hessian.h):
 *
 *     start     what the type's encoder makes: its scales stay for now
 *     feedback  codes column by column, in the Hessian's order, each corrected by the errors before it (LDLQ)
 *     descent   sweeps over all columns: each code to what is best given all others. Where a sub-block's neighbouring scales, with codes
 *               chosen again, are better still, they are taken
 *     refit     d and dmin of a block by least squares with codes held, rounded to half, taken where that is better
 *
 * Descent and refit never raise the error, tr(E H E^T); they alternate. Bytes depend on weights, Hessian and options alone. */
#ifndef APR_QUANT_FEEDBACK_H
#define APR_QUANT_FEEDBACK_H

#include "formats/number/dtype.h"
#include "quant/feedback/hessian.h"

/* tr(E H E^T), H in its own units: to be compared with one another. */
typedef struct apr_feedback_errors {
    double start, rounded, end; /* of the encoder; after feedback; after descent and refit */
} apr_feedback_errors;

bool apr_feedback_can(apr_dtype dtype);

/* Is there feedback into that type for rows of n, and is every weight a number? Fails as apr_feedback_encode. */
apr_status apr_feedback_check(apr_dtype dtype, int64_t n, const float *weights, int64_t n_rows, const char *what, apr_error *err);

/* weights: [n_rows, feedback->n]; encoded: room for the rows' blocks, in which the encoder's blocks of the same weights lie: they are the
 * start. n must be whole blocks. APR_E_DAMAGED: a weight is NaN or infinite (`what` is the tensor's name). All cores. */
apr_status apr_feedback_encode(const apr_feedback *feedback, apr_dtype dtype, const float *weights, int64_t n_rows,
                               const apr_feedback_options *options, const char *what, void *encoded, apr_feedback_errors *errors,
                               apr_error *err);

/* Bytes of heap that it takes for each thread. */
uint64_t apr_feedback_work_bytes(apr_dtype dtype, int64_t n);

#endif
