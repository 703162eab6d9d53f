/* computed.c - checks before anything is written; norms and decay rates are small, so this is cheap. */
#include "convert/computed.h"

#include "formats/tensor/composed.h"
#include "kernels/rows.h"

#include <math.h>
#include <stdlib.h>

/* Counts values that are not finite; *first is the index of the first one. */
static int64_t count_not_finite(const float *x, int64_t n, int64_t *first)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]) && count++ == 0) *first = i;
    return count;
}

static apr_status check(const apr_tensor *t, const char *path, apr_error *err)
{
    const apr_composed *const m = t->made;
    int64_t n = apr_tensor_elems(t), first = 0, ignored, n_before = 0;

    for (size_t i = 0; i < m->n_parts; i++)
        if (apr_tensor_elems(m->parts[i]) > n) n = apr_tensor_elems(m->parts[i]);
    float *const values = malloc(((size_t)n + 1) * sizeof *values);
    if (values == NULL) return apr_no_memory(err, "a tensor's values");
    apr_decode_elements(t, 0, apr_tensor_elems(t), values);
    const int64_t n_after = count_not_finite(values, apr_tensor_elems(t), &first);
    for (size_t i = 0; i < m->n_parts && n_after > 0; i++) {
        const apr_tensor *const part = m->parts[i];
        apr_decode_rows(part, 0, apr_tensor_rows(part), values);
        n_before += count_not_finite(values, apr_tensor_elems(part), &ignored);
    }
    free(values);
    if (n_after <= n_before) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED,
                    "%s: tensor '%s' is computed from '%s', which holds values that have no finite result (the first at index %lld); "
                    "the file it comes from is damaged",
                    path, t->name, m->parts[0]->name, (long long)first);
}

static bool has_data(const apr_composed *m)
{
    for (size_t i = 0; i < m->n_parts; i++)
        if (m->parts[i]->data == NULL) return false;
    return m->n_parts > 0;
}

apr_status apr_check_computed(const apr_model *view, apr_error *err)
{
    for (size_t i = 0; i < view->n_tensors; i++) {
        const apr_composed *const m = view->tensors[i].made;
        if (apr_tensor_source(&view->tensors[i]) == APR_SOURCE_COMPOSED && m->computes && has_data(m))
            APR_TRY(check(&view->tensors[i], view->path, err));
    }
    return APR_OK;
}
