/* fake_feedback.c - plain loops, and sixteen rows at a time by quant/feedback/lane_rows.h. */
#include "tests/support/fake_feedback.h"

#include "kernels/rows.h"
#include "quant/feedback/lane_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

fake_feedback_state fake_feedback_is;

struct apr_cuda_solver {
    apr_cuda_device *device;
};

static void touch(apr_cuda_solver *s, bool on)
{
    if (fake_feedback_is.touch != NULL) fake_feedback_is.touch(s->device, on);
}

static void *seen(const void *p)
{
    void *own = (void *)(uintptr_t)p;
    if (fake_feedback_is.see != NULL) fake_feedback_is.see(&own, sizeof own);
    return own;
}

static apr_cuda_factors factors_seen(const apr_cuda_factors *f)
{
    apr_cuda_factors own = *f;
    if (fake_feedback_is.see != NULL) fake_feedback_is.see(&own, sizeof own);
    return own;
}

/* factors: as seen. */
static apr_cuda_feedback_rows lanes_seen(const apr_cuda_feedback_rows *r, apr_cuda_factors *factors)
{
    apr_cuda_feedback_rows own = *r;
    if (fake_feedback_is.see != NULL) fake_feedback_is.see(&own, sizeof own);
    *factors = factors_seen(r->factors);
    own.factors = factors;
    return own;
}

static apr_status begin(apr_cuda_solver *s, apr_error *err)
{
    if (++fake_feedback_is.n_steps == fake_feedback_is.fail_at) return apr_fail(err, APR_E_DEVICE, "a fake fault of error feedback");
    touch(s, true);
    return APR_OK;
}

static apr_status end(apr_cuda_solver *s)
{
    touch(s, false);
    return APR_OK;
}

static apr_status open_solver(apr_cuda_device *device, void *workspace, uint64_t n_bytes, apr_cuda_solver **solver, const char **name,
                              apr_error *err)
{
    (void)workspace, (void)n_bytes;
    if (++fake_feedback_is.n_steps == fake_feedback_is.fail_at) return apr_fail(err, APR_E_DEVICE, "a fake fault of error feedback");
    *solver = calloc(1, sizeof **solver);
    if (*solver == NULL) return apr_no_memory(err, "a fake solver");
    (*solver)->device = device;
    *name = fake_feedback_is.name != NULL ? fake_feedback_is.name : "a fake";
    fake_feedback_is.n_open++;
    return APR_OK;
}

static void close_solver(apr_cuda_solver *s)
{
    fake_feedback_is.n_open -= s != NULL;
    free(s);
}

static apr_status add(apr_cuda_solver *s, float *sums, int64_t n, const float *x, int64_t n_tokens, apr_error *err)
{
    APR_TRY(begin(s, err));
    sums = seen(sums), x = seen(x);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t t = 0; t < n_tokens; t++) sum += (double)x[t * n + i] * (double)x[t * n + j];
            sums[i * n + j] += (float)sum;
        }
    return end(s);
}

static apr_status merge(apr_cuda_solver *s, float *h, const float *sums, int64_t n, bool first, apr_error *err)
{
    APR_TRY(begin(s, err));
    h = seen(h), sums = seen(sums);
    for (int64_t i = 0; i < n * n; i++) h[i] = first ? sums[i] : h[i] + sums[i];
    return end(s);
}

static apr_status diagonal(apr_cuda_solver *s, const float *h, int64_t n, float *to, apr_error *err)
{
    APR_TRY(begin(s, err));
    h = seen(h), to = seen(to);
    for (int64_t i = 0; i < n; i++) to[i] = h[i * n + i];
    return end(s);
}

static bool cholesky(double *l, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double v = l[i * n + j];
            for (int64_t k = 0; k < j; k++) v -= l[i * n + k] * l[j * n + k];
            if (i == j && !(v > 0.0)) return false;
            l[i * n + j] = i == j ? sqrt(v) : v / l[j * n + j];
        }
    return true;
}

static apr_status factorise(apr_cuda_solver *s, const apr_cuda_factors *factors, double scale, double damping, double *l, void *work,
                            bool *done, apr_error *err)
{
    const apr_cuda_factors own = factors_seen(factors), *const f = &own;
    const int64_t n = f->n;
    APR_TRY(begin(s, err));
    l = seen(l);
    memset(seen(work), 0xff, apr_cuda_solver_bytes(n)); /* it is to be had */
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            const int64_t a = f->order[n - 1 - i], b = f->order[n - 1 - j];
            l[i * n + j] = (double)f->h[a >= b ? a * n + b : b * n + a] * scale + (i == j ? damping : 0.0);
        }
    *done = cholesky(l, n) && fake_feedback_is.refuse-- <= 0;
    return end(s);
}

static apr_status finish(apr_cuda_solver *s, const apr_cuda_factors *factors, double scale, double damping, const double *l, apr_error *err)
{
    const apr_cuda_factors own = factors_seen(factors), *const f = &own;
    const int64_t n = f->n;
    APR_TRY(begin(s, err));
    l = seen(l);
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < n; k++)
            f->pull[j * n + k] = j < k ? (float)(l[(n - 1 - j) * n + n - 1 - k] * (1.0 / l[(n - 1 - k) * (n + 1)])) : 0.0f;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            const double v = (double)f->h[i * n + j] * scale + (i == j ? damping : 0.0);
            f->h[i * n + j] = f->h[j * n + i] = (float)v;
            if (i == j) f->diagonal[i] = (float)v, f->pivot[i] = (float)l[(n - 1 - i) * (n + 1)];
        }
    return end(s);
}

static apr_status start(apr_cuda_solver *s, apr_dtype dtype, const apr_cuda_feedback_rows *lanes, void *blocks, apr_error *err)
{
    apr_cuda_factors factors;
    const apr_cuda_feedback_rows own = lanes_seen(lanes, &factors), *const r = &own;
    const int64_t n = factors.n, row_bytes = apr_row_bytes(dtype, n);
    APR_TRY(begin(s, err));
    blocks = seen(blocks);
    for (int64_t row = 0; row < r->n_rows; row++) {
        uint8_t *const to = (uint8_t *)blocks + row * row_bytes;
        if (apr_ref_codecs[dtype].encode_by != NULL) apr_ref_codecs[dtype].encode_by(r->weight + row * n, r->factors->diagonal, to, n);
        else apr_ref_codecs[dtype].encode(r->weight + row * n, to, n);
    }
    return end(s);
}

/* ---- rows ---- */

static bool is_of(const apr_cuda_grid *a, const apr_grid *b)
{
    return b != NULL && a->elems == b->elems && a->low == b->low && a->high == b->high && a->is_e2m1 == b->is_e2m1 &&
           a->fits_min == b->fits_min && a->scale_high == b->scale_high;
}

static apr_dtype type_of(const apr_cuda_grid *grid)
{
    if (grid->points != APR_DTYPE_COUNT) return grid->points;
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (is_of(grid, apr_grid_of((apr_dtype)d))) return (apr_dtype)d;
    abort();
}

typedef enum { ROUND, DESCEND, DESCEND_RESCALED, REFIT, OBJECTIVE } step;

static void copy_block(const apr_grid *g, const apr_cuda_feedback_rows *r, int64_t block, apr_grid_block *b, bool back)
{
    const int n_subs = g->elems / g->sub_elems;
    if (back) r->d[block] = b->d, r->dmin[block] = b->dmin;
    else b->d = r->d[block], b->dmin = r->dmin[block];
    for (int i = 0; i < n_subs; i++) {
        int16_t *const scale = &r->scale[block * n_subs + i], *const min = &r->min[block * n_subs + i];
        if (back) *scale = b->scale[i], *min = b->min[i];
        else b->scale[i] = *scale, b->min[i] = *min;
    }
    for (int i = 0; i < g->elems; i++) {
        if (back) r->code[block * g->elems + i] = b->code[i];
        else b->code[i] = r->code[block * g->elems + i];
    }
}

/* Sixteen rows into bytes, through the host's step, and back. */
static apr_status some_rows(const apr_cuda_feedback_rows *r, const apr_feedback *feedback, apr_dtype dtype, int64_t first, step what,
                            apr_error *err)
{
    const apr_grid *const g = apr_grid_of(dtype);
    const int64_t n = feedback->n, now = r->n_rows - first < APR_LANES ? r->n_rows - first : APR_LANES, row_bytes = apr_row_bytes(dtype, n);
    const int64_t n_blocks = now * n / g->elems, from = first * n / g->elems, block_bytes = apr_row_bytes(dtype, g->elems);
    uint8_t *const bytes = malloc((size_t)(now * row_bytes));
    apr_lane_rows rows;
    apr_grid_block b = {0};

    if (bytes == NULL) return apr_no_memory(err, "fake rows");
    APR_TRY(apr_lane_rows_open(&rows, feedback, g, err));
    for (int64_t i = 0; i < n_blocks; i++) {
        copy_block(g, r, from + i, &b, false);
        g->pack(&b, bytes + i * block_bytes);
    }
    apr_lane_rows_load(&rows, r->weight + first * n, bytes, row_bytes, (int)now);
    if (what == ROUND) apr_lane_rows_round(&rows);
    if (what == DESCEND || what == DESCEND_RESCALED) apr_lane_rows_descend(&rows, what == DESCEND_RESCALED);
    if (what == REFIT) apr_lane_rows_refit(&rows);
    if (what == OBJECTIVE)
        for (int64_t i = 0; i < now; i++) r->objective[first + i] = i == 0 ? apr_lane_rows_objective(&rows) : 0.0;
    apr_lane_rows_store(&rows, bytes, row_bytes);
    for (int64_t i = 0; i < n_blocks; i++) {
        g->unpack(bytes + i * block_bytes, &b);
        copy_block(g, r, from + i, &b, true);
    }
    apr_lane_rows_close(&rows);
    free(bytes);
    return APR_OK;
}

/* The host's factors are transposed. */
static apr_status all_rows(apr_cuda_solver *s, const apr_cuda_feedback_rows *lanes, step what, apr_error *err)
{
    apr_cuda_factors factors;
    const apr_cuda_feedback_rows own = lanes_seen(lanes, &factors), *const r = &own;
    const int64_t n = factors.n;
    apr_status status = begin(s, err);
    if (status != APR_OK) return status;
    float *const pull = malloc((size_t)(n * n) * sizeof *pull);
    if (pull == NULL) abort();
    for (int64_t k = 0; k < n; k++)
        for (int64_t j = 0; j < n; j++) pull[k * n + j] = r->factors->pull[j * n + k];
    const apr_feedback feedback = {
        .n = n, .h = r->factors->h, .pull = pull, .diagonal = r->factors->diagonal, .pivot = r->factors->pivot, .order = r->factors->order};
    const apr_dtype dtype = type_of(&r->grid);
    for (int64_t first = 0; first < r->n_rows && status == APR_OK; first += APR_LANES)
        status = some_rows(r, &feedback, dtype, first, what, err);
    free(pull);
    touch(s, false);
    return status;
}

static apr_status errors(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, apr_error *err)
{
    (void)r; /* they follow from codes and scales whenever they are asked for */
    APR_TRY(begin(s, err));
    return end(s);
}

static apr_status round_rows(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, apr_error *err) { return all_rows(s, r, ROUND, err); }
static apr_status refit(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, apr_error *err) { return all_rows(s, r, REFIT, err); }
static apr_status objective(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, apr_error *err) { return all_rows(s, r, OBJECTIVE, err); }
static apr_status descend(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, bool rescale, apr_error *err)
{
    return all_rows(s, r, rescale ? DESCEND_RESCALED : DESCEND, err);
}

const apr_cuda_feedback fake_feedback = {.open = open_solver,
                                         .close = close_solver,
                                         .add = add,
                                         .merge = merge,
                                         .diagonal = diagonal,
                                         .factorise = factorise,
                                         .finish = finish,
                                         .start = start,
                                         .errors = errors,
                                         .round = round_rows,
                                         .descend = descend,
                                         .refit = refit,
                                         .objective = objective};
