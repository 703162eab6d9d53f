/* feedback.c - encodes the rows of a matrix on all threads, sixteen at a time. */
#include "quant/feedback/feedback.h"

#include "formats/number/dtype.h"
#include "quant/feedback/lane_rows.h"

#include <math.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads(void) { return 1; }
static int omp_get_thread_num(void) { return 0; }
#endif

bool apr_feedback_supports(apr_dtype dtype) { return apr_grid_of(dtype) != NULL; }

uint64_t apr_feedback_work_bytes(apr_dtype dtype, int64_t n)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    return grid != NULL ? apr_lane_rows_bytes(grid, n) : 0;
}

apr_status apr_feedback_check(apr_dtype dtype, int64_t n, const float *weights, int64_t n_rows, const char *what, apr_error *err)
{
    const apr_grid *const grid = apr_grid_of(dtype);

    if (grid == NULL || n % grid->elems != 0)
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s': error feedback does not support %s for rows of %lld", what,
                        apr_dtypes[dtype].name, (long long)n);
    int64_t bad = INT64_MAX; /* index of the first weight that is not finite */
#pragma omp parallel for schedule(static) reduction(min : bad)
    for (int64_t i = 0; i < n_rows * n; i++)
        if (!isfinite(weights[i]) && i < bad) bad = i;
    if (bad == INT64_MAX) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED,
                    "tensor '%s': row %lld, column %lld is NaN or infinite, so its error cannot be fed back; use --method search", what,
                    (long long)(bad / n), (long long)(bad % n));
}

static void search(apr_lane_rows *rows, int rounds, apr_feedback_errors *errors)
{
    errors->start = apr_lane_rows_objective(rows);
    apr_lane_rows_round(rows);
    errors->rounded = apr_lane_rows_objective(rows);
    for (int i = 0; i < rounds; i++) {
        apr_lane_rows_descend(rows, true);
        apr_lane_rows_refit(rows);
    }
    if (rounds > 0) apr_lane_rows_descend(rows, false);
    errors->end = apr_lane_rows_objective(rows);
}

static void encode_group(apr_lane_rows *rows, const float *weights, int64_t n_rows, int64_t first, int64_t row_bytes, int rounds,
                         uint8_t *encoded, apr_feedback_errors *errors)
{
    const int64_t left = n_rows - first;
    uint8_t *const blocks = encoded + first * row_bytes;

    apr_lane_rows_load(rows, weights + first * rows->n, blocks, row_bytes, (int)(left < APR_LANES ? left : APR_LANES));
    search(rows, rounds, errors);
    apr_lane_rows_store(rows, blocks, row_bytes);
}

static apr_status open_all(apr_lane_rows *rows, int n, const apr_feedback *feedback, const apr_grid *grid, apr_error *err)
{
    for (int i = 0; i < n; i++) APR_TRY(apr_lane_rows_open(&rows[i], feedback, grid, err));
    return APR_OK;
}

apr_status apr_feedback_encode(const apr_feedback *feedback, apr_dtype dtype, const float *weights, int64_t n_rows,
                               const apr_feedback_options *options, const char *what, void *encoded, apr_feedback_errors *errors,
                               apr_error *err)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    const int64_t n_groups = (n_rows + APR_LANES - 1) / APR_LANES;
    const int n_threads = n_groups < omp_get_max_threads() ? (int)n_groups : omp_get_max_threads();
    const int rounds = options->rounds == 0 ? APR_FEEDBACK_ROUNDS : options->rounds;

    *errors = (apr_feedback_errors){0};
    APR_TRY(apr_feedback_check(dtype, feedback->n, weights, n_rows, what, err));
    if (n_groups == 0) return APR_OK;
    const int64_t row_bytes = apr_row_bytes(dtype, feedback->n);
    apr_lane_rows *const rows = calloc((size_t)n_threads, sizeof *rows);
    apr_feedback_errors *const found = calloc((size_t)n_groups, sizeof *found);
    apr_status status =
        rows != NULL && found != NULL ? open_all(rows, n_threads, feedback, grid, err) : apr_no_memory(err, "rows of weights");
    if (status == APR_OK) {
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
        for (int64_t g = 0; g < n_groups; g++)
            encode_group(&rows[omp_get_thread_num()], weights, n_rows, g * APR_LANES, row_bytes, rounds, encoded, &found[g]);
    }
    for (int64_t g = 0; g < n_groups && status == APR_OK; g++) { /* in order: sums do not depend on threads */
        errors->start += found[g].start;
        errors->rounded += found[g].rounded;
        errors->end += found[g].end;
    }
    for (int i = 0; rows != NULL && i < n_threads; i++) apr_lane_rows_close(&rows[i]);
    free(rows);
    free(found);
    return status;
}
