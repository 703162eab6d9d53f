/* runtime/check/weights.h - compares the weights of two models, paired by operation: weight i of operation j of both programs.
 *
 * Names and slots may differ (a tied head is the embedding table), so names are not used. Each pair is scanned once. The scan also
 * builds the control: the reference model with its weights quantized to the other model's types by our encoders. The control's error is
 * the unavoidable cost of these types for this model. */
#ifndef APR_RUNTIME_WEIGHTS_H
#define APR_RUNTIME_WEIGHTS_H

#include "formats/base/progress.h"
#include "runtime/check/tensor_scan.h"
#include "runtime/session/trace.h"

typedef struct apr_weight_pair {
    const apr_tensor *reference, *other; /* of the same shape */
    apr_tensor_scan scan;
    int64_t n_parts;       /* pairs of the same slot from this one on: 1, or the remaining experts */
    unsigned uses;         /* apr_weight_use, of the reference's slot */
    double *column_errors; /* [columns] sums of squared errors, if the matrix is multiplied and differs; else NULL */
} apr_weight_pair;

typedef struct apr_weights {
    apr_weight_pair *pairs;
    size_t n_pairs;
    int64_t *pair_of; /* [n_ops * APR_OP_MAX_WEIGHTS] index of the pair; of experts, the first one's; -1: not in both models */
    bool unchanged;   /* every number is equal */

    /* missing: only one model has it, and it is not zero. damaged: NaN, infinity, or all zeros. far: error larger than the type causes */
    size_t n_missing, n_damaged, n_far;
    char missing[320], damaged[320], far[512]; /* a sentence about the first of each, or empty */
    const apr_weight_pair *worst;              /* the pair with the largest excess; NULL: none differs */

    bool has_control;
    uint64_t control_bytes; /* memory of the control, also if it was not made */
    apr_model control;      /* the reference, with the differing tensors replaced by quantized ones */
    void **buffers;         /* [n_buffers] memory of the replaced tensors */
    size_t n_buffers;
} apr_weights;

/* control_limit: largest memory of the control in bytes; 0: no control. Both sessions must have the same shape (see program_compare.h) and outlive
 * the result. Close the result, also after an error. */
apr_status apr_weights_compare(apr_weights *weights, const apr_session *reference, const apr_session *other, uint64_t control_limit,
                               const apr_progress *progress, apr_error *err);
void apr_weights_close(apr_weights *weights);

/* The pair of weight `which` of operation `op`, or NULL. Of experts it is the first; the others follow it. */
const apr_weight_pair *apr_weights_pair(const apr_weights *weights, size_t op, int which);
/* The relative error of a weight; of experts, the largest. 0: neither model has it. */
double apr_weights_relative(const apr_weights *weights, size_t op, int which);

#endif
