/* hessian.c - sums of x x^T, and their Cholesky factors, in float64. */
#include "quant/feedback/hessian.h"

#include "quant/feedback/lane_products.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TILE = 64,  /* columns of a panel of the factorization */
    STRIP = 32, /* columns that one thread sums */
    DEPTH = 128 /* tokens summed in float32 before the sum is added in float64 */
};

apr_status apr_hessian_open(apr_hessian *hessian, int64_t n, apr_error *err)
{
    *hessian = (apr_hessian){.n = n};
    hessian->sum = n > 0 && n < INT64_C(1) << 24 ? calloc((size_t)n * (size_t)n, sizeof *hessian->sum) : NULL;
    return hessian->sum != NULL ? APR_OK : apr_no_memory(err, "sums of the inputs of a layer");
}

void apr_hessian_close(apr_hessian *hessian)
{
    free(hessian->sum);
    *hessian = (apr_hessian){0};
}

/* Rows of n numbers each: x, and the same times their weights. */
typedef struct token_rows {
    const float *x, *weighted;
} token_rows;

/* Adds columns [row, row + 4) times [column, column + 32), at the edges of the matrix. */
static void add_corner(apr_hessian *hessian, token_rows t, int64_t n_tokens, int64_t row, int64_t column)
{
    const int64_t n = hessian->n, n_rows = n - row < APR_OUTER_ROWS ? n - row : APR_OUTER_ROWS;
    const int64_t n_columns = n - column < APR_OUTER_COLUMNS ? n - column : APR_OUTER_COLUMNS;

    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n_columns; j++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < n_tokens; k++) sum += t.weighted[k * n + row + i] * t.x[k * n + column + j];
            hessian->sum[(row + i) * n + column + j] += (double)sum;
        }
}

static void add_tile(apr_hessian *hessian, token_rows t, int64_t n_tokens, int64_t row, int64_t column)
{
    const int64_t n = hessian->n;
    float part[APR_OUTER_ROWS][APR_OUTER_COLUMNS];

    if (row + APR_OUTER_ROWS > n || column + APR_OUTER_COLUMNS > n) {
        add_corner(hessian, t, n_tokens, row, column);
        return;
    }
    apr_outer_products(t.weighted + row, t.x + column, n, n_tokens, part);
    for (int i = 0; i < APR_OUTER_ROWS; i++)
        for (int j = 0; j < APR_OUTER_COLUMNS; j++) hessian->sum[(row + i) * n + column + j] += (double)part[i][j];
}

/* Adds the tiles of a strip of rows that touch the lower triangle. */
static void add_rows(apr_hessian *hessian, token_rows t, int64_t n_tokens, int64_t first)
{
    for (int64_t k = 0; k < n_tokens; k += DEPTH)
        for (int64_t row = first; row < first + STRIP && row < hessian->n; row += APR_OUTER_ROWS)
            for (int64_t column = 0; column < row + APR_OUTER_ROWS; column += APR_OUTER_COLUMNS)
                add_tile(hessian, (token_rows){t.x + k * hessian->n, t.weighted + k * hessian->n},
                         n_tokens - k < DEPTH ? n_tokens - k : DEPTH, row, column);
}

static void add_all(apr_hessian *hessian, token_rows t, int64_t n_tokens)
{
    const int64_t n_strips = (hessian->n + STRIP - 1) / STRIP;

#pragma omp parallel for schedule(dynamic)
    for (int64_t i = n_strips - 1; i >= 0; i--) add_rows(hessian, t, n_tokens, i * STRIP);
    hessian->n_tokens += n_tokens;
}

void apr_hessian_add(apr_hessian *hessian, const float *x, int64_t n_tokens) { add_all(hessian, (token_rows){x, x}, n_tokens); }

apr_status apr_hessian_add_weighted(apr_hessian *hessian, const float *x, const float *weights, int64_t n_tokens, apr_error *err)
{
    const int64_t n = hessian->n;
    float *const weighted = malloc((size_t)(DEPTH * n) * sizeof *weighted);

    if (weighted == NULL) return apr_no_memory(err, "weighted inputs of a layer");
    for (int64_t t = 0; t < n_tokens; t += DEPTH) {
        const int64_t now = n_tokens - t < DEPTH ? n_tokens - t : DEPTH;
        for (int64_t k = 0; k < now; k++)
            for (int64_t j = 0; j < n; j++) weighted[k * n + j] = weights[t + k] * x[(t + k) * n + j];
        add_all(hessian, (token_rows){x + t * n, weighted}, now);
    }
    free(weighted);
    return APR_OK;
}

bool apr_hessian_is_empty(const apr_hessian *hessian)
{
    for (int64_t j = 0; j < hessian->n; j++)
        if (hessian->sum[j * hessian->n + j] != 0.0) return false;
    return true;
}

/* ---- preparing ---- */

typedef struct heavy_column {
    double weight;
    int32_t at;
} heavy_column;

/* By descending weight; equal weights keep their order. */
static int by_weight(const void *a, const void *b)
{
    const heavy_column *const x = a, *const y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The sum of the weights of a column's group. */
static double group_weight(const double *weights, int64_t column, int group)
{
    const int64_t first = column / group * group;
    double sum = 0.0;
    for (int i = 0; i < group; i++) sum += weights[first + i];
    return sum;
}

apr_status apr_feedback_order(const double *weights, int64_t n, int group, bool keeps_columns, int32_t *order, apr_error *err)
{
    heavy_column *const columns = malloc((size_t)n * sizeof *columns);

    if (columns == NULL) return apr_no_memory(err, "the order of columns");
    for (int64_t j = 0; j < n; j++) columns[j] = (heavy_column){keeps_columns ? 0.0 : group_weight(weights, j, group), (int32_t)j};
    qsort(columns, (size_t)n, sizeof *columns, by_weight);
    for (int64_t j = 0; j < n; j++) order[j] = columns[j].at;
    free(columns);
    return APR_OK;
}

static apr_status find_order(apr_feedback *f, const apr_hessian *hessian, bool keeps_columns, apr_error *err)
{
    double *const weights = malloc((size_t)f->n * sizeof *weights);

    if (weights == NULL) return apr_no_memory(err, "the order of columns");
    for (int64_t j = 0; j < f->n; j++) weights[j] = hessian->sum[j * f->n + j];
    const apr_status status = apr_feedback_order(weights, f->n, f->group, keeps_columns, f->order, err);
    free(weights);
    return status;
}

static double at(const apr_hessian *hessian, int64_t i, int64_t j)
{
    return hessian->sum[i >= j ? i * hessian->n + j : j * hessian->n + i];
}

apr_status apr_hessian_not_finite(const char *what, int64_t i, int64_t j, apr_error *err)
{
    return apr_fail(err, APR_E_DAMAGED,
                    "%s: the calibration text produces inputs that are NaN or infinite (columns %lld and %lld): the model "
                    "cannot be calibrated with it",
                    what, (long long)i, (long long)j);
}

static apr_status check_numbers(const apr_hessian *hessian, const char *what, apr_error *err)
{
    for (int64_t i = 0; i < hessian->n; i++)
        for (int64_t j = 0; j <= i; j++)
            if (!isfinite(hessian->sum[i * hessian->n + j])) return apr_hessian_not_finite(what, i, j, err);
    return APR_OK;
}

/* Fills `l` with the damped matrix in reversed order: its lower Cholesky factor, read backwards, is the upper factor R. */
static void fill_reversed(const apr_feedback *f, const apr_hessian *hessian, double scale, double *l)
{
    const int64_t n = f->n;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            const int64_t a = f->order[n - 1 - i], b = f->order[n - 1 - j];
            const double damped = at(hessian, a, b) * scale + (i == j ? f->damping : 0.0);
            l[i * n + j] = i == j && !(damped > 0.0) ? 1.0 : damped;
        }
}

/* l[i][j] -= sum over k in [first, end): l[i][k] * l[j][k], for one panel of columns j. */
static void subtract(double *l, int64_t n, int64_t i, int64_t j_first, int64_t j_end, int64_t first, int64_t end)
{
    const double *const a = l + i * n;
    for (int64_t j = j_first; j < j_end; j++) {
        const double *const b = l + j * n;
        double lane[8] = {0};
        int64_t k = first;
        for (; k + 8 <= end; k += 8)
            for (int v = 0; v < 8; v++) lane[v] += a[k + v] * b[k + v];
        for (; k < end; k++) lane[0] += a[k] * b[k];
        l[i * n + j] -= ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    }
}

/* Solves columns [first, end) of row i, after earlier panels were subtracted. False: not positive definite. */
static bool solve_row(double *l, int64_t n, int64_t i, int64_t first, int64_t end)
{
    double *const row = l + i * n;
    for (int64_t j = first; j < end && j <= i; j++) {
        double v = row[j];
        for (int64_t k = first; k < j; k++) v -= row[k] * l[j * n + k];
        if (i == j && !(v > 0.0)) return false;
        row[j] = i == j ? sqrt(v) : v / l[j * n + j];
    }
    return true;
}

/* Cholesky factorization in place, in panels of columns (left-looking): each panel first subtracts the products of earlier panels. */
static bool factorise(double *l, int64_t n)
{
    for (int64_t first = 0; first < n; first += TILE) {
        const int64_t end = first + TILE < n ? first + TILE : n;
#pragma omp parallel for schedule(dynamic, 8)
        for (int64_t i = first; i < n; i++) subtract(l, n, i, first, i < end ? i + 1 : end, 0, first);
        for (int64_t i = first; i < end; i++)
            if (!solve_row(l, n, i, first, end)) return false;
#pragma omp parallel for schedule(dynamic, 8)
        for (int64_t i = end; i < n; i++) solve_row(l, n, i, first, end);
    }
    return true;
}

/* pull[k][j] = R_jk / R_kk, with R_jk = l[n-1-j][n-1-k] for j <= k. */
static void fill_pull(apr_feedback *f, const double *l)
{
    const int64_t n = f->n;
#pragma omp parallel for schedule(dynamic, 8)
    for (int64_t k = 0; k < n; k++) {
        const int64_t column = n - 1 - k;
        const double inverse = 1.0 / l[column * n + column];
        f->pivot[k] = (float)l[column * n + column];
        for (int64_t j = 0; j < k; j++) f->pull[k * n + j] = (float)(l[(n - 1 - j) * n + column] * inverse);
    }
}

static void fill_damped(apr_feedback *f, const apr_hessian *hessian, double scale)
{
    const int64_t n = f->n;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) f->h[i * n + j] = (float)(at(hessian, i, j) * scale);
        const double damped = at(hessian, i, i) * scale + f->damping;
        f->h[i * n + i] = f->diagonal[i] = damped > 0.0 ? (float)damped : 1.0f;
    }
}

static double mean_diagonal(const apr_hessian *hessian)
{
    double sum = 0.0;
    for (int64_t j = 0; j < hessian->n; j++) sum += at(hessian, j, j);
    return sum / (double)hessian->n;
}

static apr_status fill(apr_feedback *f, const apr_hessian *hessian, const apr_feedback_options *options, const char *what, apr_error *err)
{
    const double mean = mean_diagonal(hessian), scale = mean > 0.0 ? 1.0 / mean : 1.0;
    double *const l = malloc((size_t)f->n * (size_t)f->n * sizeof *l);
    bool done = false;

    if (l == NULL) return apr_no_memory(err, "the factors of a layer's inputs");
    f->damping = options->damping > 0.0 ? options->damping : APR_FEEDBACK_DAMPING;
    for (int i = 0; i < APR_FEEDBACK_TRIES && !done; i++) {
        if (i > 0) f->damping *= 4.0;
        fill_reversed(f, hessian, scale, l);
        done = factorise(l, f->n);
    }
    if (done) fill_pull(f, l);
    free(l);
    if (!done) return apr_fail(err, APR_E_DAMAGED, "%s: the inputs of the calibration text have no Cholesky factors", what);
    fill_damped(f, hessian, scale);
    return APR_OK;
}

apr_status apr_feedback_prepare(apr_feedback *f, const apr_hessian *hessian, const apr_feedback_options *options, const char *what,
                                apr_error *err)
{
    const size_t n = (size_t)hessian->n;

    *f = (apr_feedback){.n = hessian->n, .group = options->group > 1 ? options->group : 1};
    APR_TRY(check_numbers(hessian, what, err));
    f->h = malloc(n * n * sizeof *f->h);
    f->pull = malloc(n * n * sizeof *f->pull);
    f->order = malloc(n * sizeof *f->order);
    f->diagonal = malloc(n * sizeof *f->diagonal);
    f->pivot = malloc(n * sizeof *f->pivot);
    apr_status status = f->h != NULL && f->pull != NULL && f->order != NULL && f->diagonal != NULL && f->pivot != NULL
                            ? APR_OK
                            : apr_no_memory(err, "the factors of a layer's inputs");
    if (status == APR_OK) status = find_order(f, hessian, options->keeps_columns, err);
    if (status == APR_OK) status = fill(f, hessian, options, what, err);
    if (status != APR_OK) apr_feedback_close(f);
    return status;
}

void apr_feedback_close(apr_feedback *f)
{
    free(f->h);
    free(f->pull);
    free(f->order);
    free(f->diagonal);
    free(f->pivot);
    *f = (apr_feedback){0};
}

uint64_t apr_hessian_bytes(int64_t n) { return (uint64_t)n * (uint64_t)n * sizeof(double); }
uint64_t apr_feedback_bytes(int64_t n) { return (uint64_t)n * (uint64_t)n * (sizeof(double) + 2 * sizeof(float)); }
