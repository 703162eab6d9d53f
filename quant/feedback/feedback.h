/* quant/feedback/feedback.h - encodes a matrix so that its outputs W x change least, using error feedback (LDLQ).
 *
 * Sixteen rows at a time, each independent of the others, with the Hessian of the inputs (quant/feedback/hessian.h):
 *
 *     start     the blocks of the type's ordinary encoder, whose scales are used first
 *     feedback  codes are rounded column by column, in the Hessian's order, each corrected by the errors before it (LDLQ)
 *     descent   coordinate descent over all columns: each code is set to the best one given all others. Neighbouring scales of a sub-block
 *               are tried with new codes, and taken if they are better
 *     refit     d and dmin of a block by least squares with fixed codes, rounded to half, taken if better
 *
 * Descent and refit alternate and never raise the error tr(E H E^T). Bytes depend on weights, Hessian and options only. */
#ifndef APR_QUANT_FEEDBACK_H
#define APR_QUANT_FEEDBACK_H

#include "formats/number/dtype.h"
#include "quant/feedback/hessian.h"

/* tr(E H E^T), in units of H: only comparable with each other. */
typedef struct apr_feedback_errors {
    double start, rounded, end; /* of the encoder; after feedback; after descent and refit */
} apr_feedback_errors;

bool apr_feedback_supports(apr_dtype dtype);
/* The group that the factors for a type must be prepared with (apr_feedback_options). */
int apr_feedback_group(apr_dtype dtype);

/* Checks that the type supports feedback for rows of n, and that every weight is finite. Fails as apr_feedback_encode does. */
apr_status apr_feedback_check(apr_dtype dtype, int64_t n, const float *weights, int64_t n_rows, const char *what, apr_error *err);

/* weights: [n_rows, feedback->n]. feedback: prepared with the type's group. encoded: on input the ordinary encoder's blocks of the same weights, on output the result. n must be
 * whole blocks. APR_E_DAMAGED: a weight is NaN or infinite (`what` is the tensor's name). Uses all cores. */
apr_status apr_feedback_encode(const apr_feedback *feedback, apr_dtype dtype, const float *weights, int64_t n_rows,
                               const apr_feedback_options *options, const char *what, void *encoded, apr_feedback_errors *errors,
                               apr_error *err);

#endif
