/* adapter_values.c - decodes numbers in pieces and counts those that are not finite. */
#include "convert/adapter_values.h"

#include "formats/tensor/composed.h"
#include "kernels/rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { PIECE = 1 << 16 };

/* Below this bound, adding the change to a value of the base cannot overflow float32. */
static const double safe_magnitude = 1e30;

typedef struct count {
    int64_t n_not_finite, first; /* first: index of the first one */
    float largest;               /* largest magnitude of the finite values */
} count;

static void count_piece(const float *x, int64_t n, int64_t at, count *c)
{
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(x[i])) c->largest = fmaxf(c->largest, fabsf(x[i]));
        else if (c->n_not_finite++ == 0) c->first = at + i;
    }
}

static apr_status count_values(const apr_tensor *t, count *c, apr_error *err)
{
    const int64_t n = apr_tensor_elems(t), piece = n < PIECE ? n : PIECE;
    float *const values = malloc(((size_t)piece + 1) * sizeof *values);

    *c = (count){.first = -1};
    if (values == NULL) return apr_no_memory(err, "an adapter's values");
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t here = n - at < PIECE ? n - at : PIECE;
        apr_decode_elements(t, at, here, values);
        count_piece(values, here, at, c);
    }
    free(values);
    return APR_OK;
}

/* Checks one tensor of the adapter; NULL is fine. *largest: its largest magnitude. */
static apr_status check_own(const apr_adapter *adapter, const apr_tensor *t, double *largest, apr_error *err)
{
    count c;

    *largest = 0.0;
    if (t == NULL) return APR_OK;
    APR_TRY(count_values(t, &c, err));
    *largest = (double)c.largest;
    if (c.n_not_finite == 0) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED, "%s: %" PRId64 " of the %" PRId64 " values of '%s' are not finite (the first at index %" PRId64 ")",
                    adapter->path, c.n_not_finite, apr_tensor_elems(t), t->name, c.first);
}

apr_status apr_check_merged(const apr_adapter *adapter, const apr_adapter_change *change, double scale, const apr_tensor *merged,
                            apr_error *err)
{
    double whole, a, b, magnitudes;
    count before, after;

    APR_TRY(check_own(adapter, change->whole, &whole, err));
    APR_TRY(check_own(adapter, change->a, &a, err));
    APR_TRY(check_own(adapter, change->b, &b, err));
    APR_TRY(check_own(adapter, change->magnitudes, &magnitudes, err));
    if (change->whole != NULL || change->a == NULL) return APR_OK;
    const double most = a * b * (double)change->a->dims[0] * fmax(fabs(scale), 1.0); /* also before the scale */
    if (most < safe_magnitude && change->magnitudes == NULL) return APR_OK;
    APR_TRY(count_values(merged, &after, err));
    if (after.n_not_finite == 0) return APR_OK;
    APR_TRY(count_values(merged->made->parts[0], &before, err));
    if (after.n_not_finite <= before.n_not_finite) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED,
                    "%s: merging into '%s' makes %" PRId64 " values that are not finite (the first at index %" PRId64 "); the model "
                    "has %" PRId64,
                    adapter->path, change->name, after.n_not_finite, after.first, before.n_not_finite);
}
