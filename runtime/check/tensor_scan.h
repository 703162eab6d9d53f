/* runtime/check/tensor_scan.h - measures the error of a quantized tensor against its reference, and the error its type must have.
 *
 * The unavoidable error of a type depends on the numbers. So the reference's rows are encoded to the same type here, and the error of this
 * control is the measure. Another good encoder comes close to it in every row. A row that is missing, moved or taken from another tensor
 * has an error of its own size, which no type causes. Values that the type holds exactly (norms in F32, BF16 in F32) must be equal;
 * F32 vectors may differ by rounding. */
#ifndef APR_RUNTIME_TENSOR_SCAN_H
#define APR_RUNTIME_TENSOR_SCAN_H

#include "kernels/rows.h"

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
    uint8_t *control;      /* [apr_control_bytes] the control's encoded rows, in logical order */
    float *control_scales; /* [rows] of an FP8 control */
} apr_scan_outputs;

/* Decodes the whole tensor. reference may be NULL; otherwise it must have the same shape (else APR_E_NO). APR_E_UNSUPPORTED: a type cannot
 * be decoded. keep may be NULL. */
apr_status apr_scan_tensor(const apr_tensor *tensor, const apr_tensor *reference, const apr_scan_outputs *keep, apr_tensor_scan *scan,
                           apr_error *err);

/* True if a control can be made: this tensor's type has an encoder. */
bool apr_has_control(const apr_tensor *tensor);
uint64_t apr_control_bytes(const apr_tensor *tensor);

#endif
