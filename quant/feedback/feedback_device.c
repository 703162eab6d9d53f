/* feedback_device.c - divides device memory into sums, factors and rows, lays out the arrays of rows, and runs the steps in order. */
#include "quant/feedback/feedback_device.h"

#include "formats/base/bytes.h"
#include "quant/feedback/device_rows.h"
#include "quant/feedback/grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 65535, MOST_ROWS = 32768 /* limits of CUDA grid dimensions */, LEAST_ROWS = 16 };
static const uint64_t rows_bytes = (uint64_t)2 << 30;       /* products are not faster with more rows */
static const uint64_t workspace_bytes = (uint64_t)32 << 20; /* cuBLAS workspace, as NVIDIA recommends for Hopper */

const char *const apr_feedback_line_names[APR_FEEDBACK_LINES] = {"sums of inputs", "factors of a matrix", "rows of weights",
                                                                 "workspaces of cuBLAS and cuSOLVER"};

struct apr_feedback_device {
    const apr_cuda_api *cuda;
    apr_cuda_device *device;
    apr_cuda_solver *solver;
    const char *solver_name;
    apr_feedback_plan plan;
    uint8_t *factors, *rows, *libraries; /* device memory, one for each line of the plan */
    apr_cuda_factors prepared;
    apr_device_rows searched; /* of the last matrix, whose host memory the next one uses again */
};

/* ---- the arrays of rows ---- */

/* Takes n_bytes at *at and advances it; to count bytes only, start at 0. */
static void *take_bytes(uintptr_t *at, uint64_t n_bytes)
{
    void *const p = (void *)*at;
    *at += apr_align_up(n_bytes, 256);
    return p;
}

/* Lays out the arrays code to dmin. */
static void lay_out_parts(apr_cuda_feedback_rows *r, uintptr_t *at, int64_t n)
{
    const uint64_t n_values = (uint64_t)(r->n_rows * n), n_subs = n_values / (uint64_t)r->grid.sub_elems,
                   n_blocks = n_values / (uint64_t)r->grid.elems;
    r->code = take_bytes(at, n_values);
    r->scale = take_bytes(at, n_subs * sizeof *r->scale);
    r->min = take_bytes(at, n_subs * sizeof *r->min);
    r->d = take_bytes(at, n_blocks * sizeof *r->d);
    r->dmin = take_bytes(at, n_blocks * sizeof *r->dmin);
}

/* Lays out the arrays that only the device has. Returns the address of the stored blocks. */
static void *lay_out_values(apr_cuda_feedback_rows *r, uintptr_t *at, apr_dtype dtype, int64_t n)
{
    const uint64_t n_values = (uint64_t)(r->n_rows * n);
    r->weight = take_bytes(at, n_values * sizeof *r->weight);
    r->error = take_bytes(at, n_values * sizeof *r->error);
    r->gathered = take_bytes(at, n_values * sizeof *r->gathered);
    r->panel = take_bytes(at, (uint64_t)r->n_rows * APR_CUDA_PANEL * sizeof *r->panel);
    r->objective = take_bytes(at, (uint64_t)r->n_rows * sizeof *r->objective);
    r->metrics = take_bytes(at, r->grid.points != APR_DTYPE_COUNT ? (uint64_t)(n / APR_GRID_GROUP) * sizeof *r->metrics : 0);
    return take_bytes(at, (uint64_t)apr_row_bytes(dtype, r->n_rows * n));
}

static apr_cuda_grid grid_for_device(const apr_grid *g, apr_dtype dtype)
{
    const apr_points none = {0}, *const points = g->points != NULL ? g->points : &none;
    return (apr_cuda_grid){.elems = g->elems,
                           .sub_elems = g->sub_elems,
                           .is_e2m1 = g->is_e2m1,
                           .is_iq4 = g->n_levels == 16,
                           .low = g->low,
                           .high = g->high,
                           .steps = (int)g->steps,
                           .scale_low = g->scale_low,
                           .scale_high = g->scale_high,
                           .min_low = g->min_low,
                           .min_high = g->min_high,
                           .fits_min = g->fits_min,
                           .min_is_signed = g->min_is_signed,
                           .scale_reach = g->scale_reach,
                           .min_reach = g->min_reach,
                           .points = g->points != NULL ? dtype : APR_DTYPE_COUNT,
                           .unit = points->unit,
                           .first = points->first,
                           .gap = points->gap};
}

uint64_t apr_lane_bytes_of(const apr_grid *grid, apr_dtype dtype, int64_t n, int64_t n_rows)
{
    apr_cuda_feedback_rows r = {.grid = grid_for_device(grid, dtype), .n_rows = n_rows};
    uintptr_t at = 0;
    lay_out_values(&r, &at, dtype, n);
    lay_out_parts(&r, &at, n);
    return at;
}

/* Lays out the arrays for n_rows rows. */
static void cut_memory(apr_device_rows *m, int64_t n_rows)
{
    const int64_t n = m->on_device.factors->n;
    uintptr_t on_device = (uintptr_t)m->device, on_host = (uintptr_t)m->host;

    m->on_device.n_rows = m->on_host.n_rows = n_rows;
    m->blocks = lay_out_values(&m->on_device, &on_device, m->dtype, n);
    lay_out_parts(&m->on_device, &on_device, n);
    lay_out_parts(&m->on_host, &on_host, n);
    m->parts_bytes = on_host - (uintptr_t)m->host;
    m->on_host.objective = take_bytes(&on_host, (uint64_t)n_rows * sizeof *m->on_host.objective);
}

/* Memory that was used is faster than fresh memory: a 7B's rows go through 35 GB of it. */
static apr_status open_rows_again(apr_device_rows *m, const apr_grid *grid, apr_dtype dtype, const apr_cuda_factors *factors,
                                  int64_t most_rows, uint8_t *device, apr_error *err)
{
    const apr_cuda_feedback_rows lanes = {.grid = grid_for_device(grid, dtype), .factors = factors, .n_rows = most_rows};
    apr_cuda_feedback_rows measured = lanes;
    uintptr_t n_bytes = 0;

    lay_out_parts(&measured, &n_bytes, factors->n);
    n_bytes += apr_align_up((uint64_t)most_rows * sizeof(double), 256);
    if (n_bytes > m->host_bytes) {
        free(m->host);
        m->host = aligned_alloc(256, n_bytes);
        m->host_bytes = m->host != NULL ? n_bytes : 0;
    }
    if (m->host == NULL) return apr_no_memory(err, "codes of rows");
    *m = (apr_device_rows){
        .on_device = lanes, .on_host = lanes, .dtype = dtype, .device = device, .host = m->host, .host_bytes = m->host_bytes};
    cut_memory(m, most_rows);
    return APR_OK;
}

apr_status apr_device_rows_open(apr_device_rows *m, const apr_grid *grid, apr_dtype dtype, const apr_cuda_factors *factors,
                                int64_t most_rows, uint8_t *device, apr_error *err)
{
    *m = (apr_device_rows){0};
    return open_rows_again(m, grid, dtype, factors, most_rows, device, err);
}

void apr_device_rows_close(apr_device_rows *m)
{
    free(m->host);
    *m = (apr_device_rows){0};
}

static void unpack_block(const apr_grid *grid, const apr_cuda_feedback_rows *r, const uint8_t *bytes, int64_t block)
{
    const int n_subs = grid->elems / grid->sub_elems;
    apr_grid_block b;

    grid->unpack(bytes, &b);
    r->d[block] = b.d;
    r->dmin[block] = b.dmin;
    for (int i = 0; i < n_subs; i++) {
        r->scale[block * n_subs + i] = b.scale[i];
        r->min[block * n_subs + i] = b.min[i];
    }
    for (int i = 0; i < grid->elems; i++) r->code[block * grid->elems + i] = b.code[i];
}

static void pack_block(const apr_grid *grid, const apr_cuda_feedback_rows *r, uint8_t *bytes, int64_t block)
{
    const int n_subs = grid->elems / grid->sub_elems;
    apr_grid_block b = {.d = r->d[block], .dmin = r->dmin[block]};

    for (int i = 0; i < n_subs; i++) {
        b.scale[i] = r->scale[block * n_subs + i];
        b.min[i] = r->min[block * n_subs + i];
    }
    for (int i = 0; i < grid->elems; i++) b.code[i] = r->code[block * grid->elems + i];
    grid->pack(&b, bytes);
}

void apr_lanes_unpack(apr_dtype dtype, const apr_cuda_feedback_rows *r, const uint8_t *blocks)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    const int64_t n_blocks = r->n_rows * r->factors->n / grid->elems, block_bytes = apr_row_bytes(dtype, grid->elems);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n_blocks; i++) unpack_block(grid, r, blocks + i * block_bytes, i);
}

/* Converts arrays on the host to blocks. Uses all cores. */
static void pack_lanes(apr_dtype dtype, const apr_cuda_feedback_rows *r, uint8_t *blocks)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    const int64_t n_blocks = r->n_rows * r->factors->n / grid->elems, block_bytes = apr_row_bytes(dtype, grid->elems);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n_blocks; i++) pack_block(grid, r, blocks + i * block_bytes, i);
}

/* ---- the plan ---- */

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t apr_device_sums_bytes(int64_t n) { return apr_align_up((uint64_t)n * (uint64_t)n * sizeof(float), 256); }

/* h, pull and the factor in float64; then diagonal, pivots and order. */
static uint64_t factors_bytes(int64_t n)
{
    const uint64_t square = (uint64_t)n * (uint64_t)n;
    return 2 * apr_device_sums_bytes(n) + apr_align_up(square * sizeof(double), 256) + 3 * apr_align_up((uint64_t)n * 4, 256);
}

apr_status apr_feedback_plan_item(apr_feedback_plan *plan, apr_dtype dtype, int64_t n_rows, int64_t n, apr_error *err)
{
    const apr_grid *const grid = apr_grid_of(dtype);

    if (grid == NULL || n < 1 || n_rows < 1) return APR_OK;
    plan->bytes[APR_FEEDBACK_ROWS] = larger(plan->bytes[APR_FEEDBACK_ROWS], LEAST_ROWS * (uint64_t)n * sizeof(float)); /* inputs */
    if (n > MOST_COLUMNS)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "error feedback on a GPU supports rows of at most %d values, but some have %lld; use --device host",
                        (int)MOST_COLUMNS, (long long)n);
    const int64_t now = n_rows < MOST_ROWS ? n_rows : MOST_ROWS;
    const uint64_t least = apr_lane_bytes_of(grid, dtype, n, now < LEAST_ROWS ? now : LEAST_ROWS),
                   all = apr_lane_bytes_of(grid, dtype, n, now);
    plan->bytes[APR_FEEDBACK_ROWS] = larger(plan->bytes[APR_FEEDBACK_ROWS], all < rows_bytes ? all : larger(rows_bytes, least));
    plan->bytes[APR_FEEDBACK_FACTORS] = larger(plan->bytes[APR_FEEDBACK_FACTORS], factors_bytes(n));
    plan->bytes[APR_FEEDBACK_LIBRARIES] = larger(plan->bytes[APR_FEEDBACK_LIBRARIES], workspace_bytes + apr_cuda_solver_bytes(n));
    plan->widest = n > plan->widest ? n : plan->widest;
    return APR_OK;
}

uint64_t apr_feedback_plan_bytes(const apr_feedback_plan *plan)
{
    uint64_t sum = 0;
    for (int i = 0; i < APR_FEEDBACK_LINES; i++) sum += plan->bytes[i];
    return sum;
}

/* ---- opening ---- */

static apr_status allocate(apr_feedback_device *g, apr_feedback_line line, uint8_t **to, apr_error *err)
{
    void *p = NULL;
    APR_TRY(g->cuda->alloc(g->device, g->plan.bytes[line], apr_feedback_line_names[line], &p, err));
    *to = p;
    return APR_OK;
}

apr_status apr_feedback_device_open(apr_feedback_device **gpu, const apr_cuda_api *cuda, apr_cuda_device *device,
                                    const apr_feedback_plan *plan, apr_error *err)
{
    apr_feedback_device *const g = *gpu = calloc(1, sizeof *g);

    if (g == NULL) return apr_no_memory(err, "error feedback on a device");
    *g = (apr_feedback_device){.cuda = cuda, .device = device, .plan = *plan};
    apr_status status = allocate(g, APR_FEEDBACK_FACTORS, &g->factors, err);
    if (status == APR_OK) status = allocate(g, APR_FEEDBACK_ROWS, &g->rows, err);
    if (status == APR_OK) status = allocate(g, APR_FEEDBACK_LIBRARIES, &g->libraries, err);
    if (status == APR_OK) status = cuda->feedback->open(device, g->libraries, workspace_bytes, &g->solver, &g->solver_name, err);
    if (status == APR_OK) return APR_OK;
    apr_feedback_device_close(g);
    *gpu = NULL;
    return status;
}

void apr_feedback_device_close(apr_feedback_device *g)
{
    if (g == NULL) return;
    g->cuda->feedback->close(g->solver);
    apr_device_rows_close(&g->searched);
    g->cuda->release(g->device, g->factors);
    g->cuda->release(g->device, g->rows);
    g->cuda->release(g->device, g->libraries);
    free(g);
}

const char *apr_feedback_device_solver(const apr_feedback_device *g) { return g->solver_name; }

/* ---- sums ---- */

static apr_status open_sums(apr_feedback_device *g, apr_device_sums *sums, int64_t n, apr_error *err)
{
    void *p = NULL;
    APR_TRY(g->cuda->alloc(g->device, apr_device_sums_bytes(n), apr_feedback_line_names[APR_FEEDBACK_SUMS], &p, err));
    *sums = (apr_device_sums){.n = n, .at = p};
    return g->cuda->clear(g->device, p, apr_device_sums_bytes(n), err);
}

/* Rows on the host are copied in parts to the memory for rows of weights. */
static apr_status add_from_host(apr_feedback_device *g, apr_device_sums *sums, const float *x, int64_t n_tokens, apr_error *err)
{
    const int64_t most = (int64_t)(g->plan.bytes[APR_FEEDBACK_ROWS] / ((uint64_t)sums->n * sizeof *x));

    for (int64_t t = 0, now; t < n_tokens; t += now) {
        now = n_tokens - t < most ? n_tokens - t : most;
        APR_TRY(g->cuda->upload(g->device, g->rows, x + t * sums->n, (uint64_t)(now * sums->n) * sizeof *x, err));
        APR_TRY(g->cuda->feedback->add(g->solver, sums->at, sums->n, (const float *)(const void *)g->rows, now, err));
    }
    return APR_OK;
}

apr_status apr_device_sums_add(apr_feedback_device *g, apr_device_sums *sums, int64_t n, const float *x, bool is_on_device,
                               int64_t n_tokens, apr_error *err)
{
    if (sums->at == NULL) APR_TRY(open_sums(g, sums, n, err));
    if (is_on_device) APR_TRY(g->cuda->feedback->add(g->solver, sums->at, n, x, n_tokens, err));
    else APR_TRY(add_from_host(g, sums, x, n_tokens, err));
    sums->n_tokens += n_tokens;
    return g->cuda->check(g->device, "calibration", err);
}

void apr_device_sums_drop(apr_feedback_device *g, apr_device_sums *sums)
{
    if (sums->at != NULL) g->cuda->release(g->device, sums->at);
    *sums = (apr_device_sums){0};
}

/* ---- factors ---- */

static void lay_out_factors(apr_feedback_device *g, int64_t n, double **factor)
{
    uint8_t *at = g->factors;
    g->prepared = (apr_cuda_factors){.n = n, .h = (float *)(void *)at};
    at += apr_device_sums_bytes(n);
    g->prepared.pull = (float *)(void *)at;
    at += apr_device_sums_bytes(n);
    *factor = (double *)(void *)at;
    at += apr_align_up((uint64_t)n * (uint64_t)n * sizeof **factor, 256);
    g->prepared.diagonal = (float *)(void *)at;
    at += apr_align_up((uint64_t)n * 4, 256);
    g->prepared.pivot = (float *)(void *)at;
    at += apr_align_up((uint64_t)n * 4, 256);
    g->prepared.order = (int32_t *)(void *)at;
}

/* The diagonal of the sums on the host. */
typedef struct diagonal {
    float *read;
    double *weight;
    int32_t *order;
    double mean;
} diagonal;

static void drop_diagonal(diagonal *d)
{
    free(d->read);
    free(d->weight);
    free(d->order);
}

static apr_status read_diagonal(apr_feedback_device *g, diagonal *d, const char *what, apr_error *err)
{
    const int64_t n = g->prepared.n;
    double sum = 0.0;

    d->read = malloc((size_t)n * sizeof *d->read);
    d->weight = malloc((size_t)n * sizeof *d->weight);
    d->order = malloc((size_t)n * sizeof *d->order);
    if (d->read == NULL || d->weight == NULL || d->order == NULL) return apr_no_memory(err, "the order of columns");
    APR_TRY(g->cuda->feedback->diagonal(g->solver, g->prepared.h, n, g->prepared.diagonal, err));
    APR_TRY(g->cuda->download(g->device, d->read, g->prepared.diagonal, (uint64_t)n * sizeof *d->read, err));
    for (int64_t j = 0; j < n; j++) {
        if (!isfinite(d->read[j])) return apr_hessian_not_finite(what, j, j, err); /* its square also shows inputs that are not finite */
        sum += d->weight[j] = (double)d->read[j];
    }
    d->mean = sum / (double)n;
    return APR_OK;
}

static apr_status factorise(apr_feedback_device *g, const apr_feedback_options *options, double scale, double *factor, const char *what,
                            apr_error *err)
{
    const apr_cuda_feedback *const f = g->cuda->feedback;
    double damping = options->damping > 0.0 ? options->damping : APR_FEEDBACK_DAMPING;
    bool done = false;

    for (int i = 0; i < APR_FEEDBACK_TRIES && !done; i++) {
        if (i > 0) damping *= 4.0;
        APR_TRY(f->factorise(g->solver, &g->prepared, scale, damping, factor, g->libraries + workspace_bytes, &done, err));
    }
    if (!done) return apr_fail(err, APR_E_DAMAGED, "%s: the inputs of the calibration text have no Cholesky factors", what);
    return f->finish(g->solver, &g->prepared, scale, damping, factor, err);
}

static apr_status prepare(apr_feedback_device *g, diagonal *d, const apr_feedback_options *options, double *factor, const char *what,
                          bool *is_empty, apr_error *err)
{
    const int64_t n = g->prepared.n;

    APR_TRY(read_diagonal(g, d, what, err));
    *is_empty = d->mean == 0.0; /* the diagonal is sums of squares */
    if (*is_empty) return APR_OK;
    APR_TRY(apr_feedback_order(d->weight, n, options->group > 1 ? options->group : 1, options->keeps_columns, d->order, err));
    APR_TRY(g->cuda->upload(g->device, g->prepared.order, d->order, (uint64_t)n * sizeof *d->order, err));
    return factorise(g, options, d->mean > 0.0 ? 1.0 / d->mean : 1.0, factor, what, err);
}

apr_status apr_feedback_device_prepare(apr_feedback_device *g, const apr_device_sums *const *sums, size_t n_sums,
                                       const apr_feedback_options *options, const char *what, bool *is_empty, apr_error *err)
{
    diagonal d = {0};
    double *factor = NULL;
    size_t n_merged = 0;

    *is_empty = true;
    for (size_t i = 0; i < n_sums; i++) {
        if (sums[i]->at == NULL) continue;
        if (n_merged == 0) lay_out_factors(g, sums[i]->n, &factor);
        APR_TRY(g->cuda->feedback->merge(g->solver, g->prepared.h, sums[i]->at, sums[i]->n, n_merged++ == 0, err));
    }
    if (n_merged == 0) return APR_OK;
    const apr_status status = prepare(g, &d, options, factor, what, is_empty, err);
    drop_diagonal(&d);
    return status;
}

/* ---- rows ---- */

static apr_status run_search(apr_feedback_device *g, const apr_cuda_feedback_rows *lanes, int rounds, double *objective,
                             apr_feedback_errors *errors, apr_error *err)
{
    const apr_cuda_feedback *const f = g->cuda->feedback;
    double *const sums[] = {&errors->start, &errors->rounded, &errors->end};

    APR_TRY(f->errors(g->solver, lanes, err));
    for (int which = 0; which < 3; which++) {
        if (which == 1) APR_TRY(f->round(g->solver, lanes, err));
        for (int i = 0; which == 2 && i < rounds; i++) {
            APR_TRY(f->descend(g->solver, lanes, true, err));
            APR_TRY(f->refit(g->solver, lanes, err));
        }
        if (which == 2 && rounds > 0) APR_TRY(f->descend(g->solver, lanes, false, err));
        APR_TRY(f->objective(g->solver, lanes, err));
        APR_TRY(g->cuda->download(g->device, objective, lanes->objective, (uint64_t)lanes->n_rows * sizeof *objective, err));
        for (int64_t r = 0; r < lanes->n_rows; r++) *sums[which] += objective[r];
    }
    return APR_OK;
}

/* Downloads the blocks that the device's encoder made, unpacks them on the host and uploads codes and scales; at the end the reverse. */
static apr_status encode_some(apr_feedback_device *g, apr_dtype dtype, const float *weights, const apr_device_rows *m, int rounds,
                              uint8_t *encoded, apr_feedback_errors *errors, apr_error *err)
{
    const apr_cuda_feedback_rows *const on_device = &m->on_device, *const on_host = &m->on_host;
    const int64_t n = on_device->factors->n;
    const uint64_t n_bytes = (uint64_t)apr_row_bytes(dtype, n * on_device->n_rows);

    APR_TRY(g->cuda->upload(g->device, on_device->weight, weights, (uint64_t)(on_device->n_rows * n) * sizeof *weights, err));
    APR_TRY(g->cuda->feedback->start(g->solver, dtype, on_device, m->blocks, err));
    APR_TRY(g->cuda->download(g->device, encoded, m->blocks, n_bytes, err));
    apr_lanes_unpack(dtype, on_host, encoded);
    APR_TRY(g->cuda->upload(g->device, on_device->code, on_host->code, m->parts_bytes, err));
    APR_TRY(run_search(g, on_device, rounds, on_host->objective, errors, err));
    APR_TRY(g->cuda->download(g->device, on_host->code, on_device->code, m->parts_bytes, err));
    pack_lanes(dtype, on_host, encoded);
    return APR_OK;
}

int64_t apr_feedback_device_rows(const apr_feedback_device *g, apr_dtype dtype, int64_t n, int64_t n_rows)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    int64_t low = 1, high = n_rows < MOST_ROWS ? n_rows : MOST_ROWS;
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (apr_lane_bytes_of(grid, dtype, n, middle) <= g->plan.bytes[APR_FEEDBACK_ROWS]) low = middle;
        else high = middle - 1;
    }
    return low;
}

apr_status apr_feedback_device_encode(apr_feedback_device *g, apr_dtype dtype, const float *weights, int64_t n_rows,
                                      const apr_feedback_options *options, const char *what, void *encoded, apr_feedback_errors *errors,
                                      apr_error *err)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    const int64_t n = g->prepared.n;
    const int rounds = options->rounds == 0 ? APR_FEEDBACK_ROUNDS : options->rounds;
    apr_device_rows *const m = &g->searched;

    *errors = (apr_feedback_errors){0};
    APR_TRY(apr_feedback_check(dtype, n, weights, n_rows, what, err));
    if (n_rows == 0) return APR_OK;
    const int64_t most = apr_feedback_device_rows(g, dtype, n, n_rows);
    APR_TRY(open_rows_again(m, grid, dtype, &g->prepared, most, g->rows, err));
    for (int64_t first = 0; first < n_rows; first += most) {
        cut_memory(m, n_rows - first < most ? n_rows - first : most);
        APR_TRY(encode_some(g, dtype, weights + first * n, m, rounds, (uint8_t *)encoded + apr_row_bytes(dtype, first * n), errors, err));
    }
    return APR_OK;
}
