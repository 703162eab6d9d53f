/* runtime/check/tensor_scan.h - what a tensor lost against the one it was made from, and what its type had to lose.
 *
 * How much a type must lose depends on the numbers: so the reference's own rows are brought to the same type here, and their error is
 * the measure (the control). Another good encoder comes close to it, in every row; a row that is missing, moved or of another
 * tensor is off by its own size, which no type needs. What the type holds exactly (norms in float32, bf16 in f32) must be exact, vectors of
 * float32 up to rounding. */
#ifndef APR_RUNTIME_TENSOR_SCAN_H
#define APR_RUNTIME_TENSOR_SCAN_H

#include "kernels/rows.h"

typedef struct apr_tensor_scan {
    int64_t n_nonfinite, first_nonfinite; /* NaN and infinities; index of the first, -1: none */
    bool all_zero;                        /* no number but 0 (an empty tensor is not) */

    /* Against the reference's tensor, 0 without one. Relative errors are roots of sum (truth - other)^2 / sum truth^2; of a row, which
     * counts as a hundredth of the average at least. A vector is one row. */
    double relative, worst_row;
    int64_t worst_row_at; /* -1: none differs */
    double control;       /* relative error of the control; NAN: no encoder for this type, the bounds are those of its bits */

    /* The place where the error is the largest part of what is allowed there: at most 1 for a faithful copy. */
    double excess, excess_error, excess_allowed; /* the two roots of sums of squares, relative to the row's or the tensor's size */
    int64_t excess_at;                           /* row; -1: the tensor as a whole */
} apr_tensor_scan;

/* What a scan also writes down, where it is not NULL. */
typedef struct apr_scan_keep {
    double *column_errors; /* [columns] sum of (truth - other)^2 in each column */
    uint8_t *control;      /* the control's rows, in logical order, apr_control_bytes of them */
    float *control_scales; /* [rows] of an FP8 control */
} apr_scan_keep;

/* Decodes all of it. truth may be NULL; otherwise it has the same shape (APR_E_NO). APR_E_UNSUPPORTED for a type that cannot
 * be decoded. keep may be NULL. */
apr_status apr_scan_tensor(const apr_tensor *tensor, const apr_tensor *truth, const apr_scan_keep *keep, apr_tensor_scan *scan,
                           apr_error *err);

/* Can the reference's rows be brought to this tensor's type here? */
bool apr_has_control(const apr_tensor *tensor);
uint64_t apr_control_bytes(const apr_tensor *tensor);

#endif
