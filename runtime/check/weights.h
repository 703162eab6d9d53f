/* runtime/check/weights.h - compares the weights of two models, paired by operation: weight i of operation j of both programs.
 *
 * Names and slots may differ (a tied head is the embedding table), so names are not used. Each pair is scanned once. The scan also
 * builds the control: the reference model with its weights quantized to the other model's types by our encoders. The control's error is
 * the unavoidable cost of these types for this model.
 *
 * The unavoidable error of a type depends on the numbers, so the control is the measure. Another good encoder comes close to it in every
 * row. A row that is missing, moved or taken from another tensor has an error of its own size, which no type causes. Values that the type
 * holds exactly (norms in F32, BF16 in F32) must be equal; F32 vectors may differ by rounding. */
#ifndef APR_RUNTIME_WEIGHTS_H
#define APR_RUNTIME_WEIGHTS_H

#include "formats/base/progress.h"
#include "kernels/rows.h"
#include "runtime/session/trace.h"

/* The error of a tensor against its reference, and the error that its type must have. */
typedef struct apr_tensor_scan {
    int64_t n_nonfinite, first_nonfinite; /* NaN and infinities; index of the first, -1: none */
    bool all_zero;                        /* all numbers are 0; false for an empty tensor */

    /* Errors against the reference; 0 without one. A relative error is sqrt(sum (reference - other)^2 / sum reference^2), of the tensor
     * or of a row. The norm of a row counts as at least a hundredth of the average row's. A vector is one row. */
    double relative, worst_row;
    int64_t worst_row_at; /* -1: no row differs */
    double control;       /* relative error of the control; NAN: no encoder for this type, bounds follow from its bits per value */

    /* excess: the largest ratio of error to allowed error, over all rows and the whole tensor; at most 1 passes. */
    double excess, excess_error, excess_allowed; /* the two errors are relative to the norm of the row or tensor */
    int64_t excess_at;                           /* row; -1: the whole tensor */
} apr_tensor_scan;

/* Further outputs of a scan; each may be NULL. */
typedef struct apr_scan_outputs {
    double *column_errors; /* [columns] sum of (reference - other)^2 in each column */
    uint8_t *control;      /* [bytes of the tensor's rows] the control's encoded rows, in logical order */
    float *control_scales; /* [rows] of an FP8 control */
} apr_scan_outputs;

/* Decodes the whole tensor. reference may be NULL; otherwise it must have the same shape (else APR_E_NO). APR_E_UNSUPPORTED: a type cannot
 * be decoded. keep may be NULL. */
apr_status apr_scan_tensor(const apr_tensor *tensor, const apr_tensor *reference, const apr_scan_outputs *keep, apr_tensor_scan *scan,
                           apr_error *err);

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

#endif
