/* device_rows.c - lays out the arrays of rows, one after another. */
#include "quant/feedback/device_rows.h"

#include "formats/base/bytes.h"

#include <stdlib.h>

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
    return take_bytes(at, (uint64_t)apr_row_bytes(dtype, r->n_rows * n));
}

static apr_cuda_grid grid_for_device(const apr_grid *g)
{
    return (apr_cuda_grid){.elems = g->elems,
                           .sub_elems = g->sub_elems,
                           .is_e2m1 = g->is_e2m1,
                           .low = g->low,
                           .high = g->high,
                           .steps = (int)g->steps,
                           .scale_low = g->scale_low,
                           .scale_high = g->scale_high,
                           .min_low = g->min_low,
                           .min_high = g->min_high,
                           .fits_min = g->fits_min,
                           .min_is_signed = g->min_is_signed};
}

uint64_t apr_lane_bytes_of(const apr_grid *grid, apr_dtype dtype, int64_t n, int64_t n_rows)
{
    apr_cuda_feedback_rows r = {.grid = grid_for_device(grid), .n_rows = n_rows};
    uintptr_t at = 0;
    lay_out_values(&r, &at, dtype, n);
    lay_out_parts(&r, &at, n);
    return at;
}

void apr_lane_memory_lay_out(apr_device_rows *m, int64_t n_rows)
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

apr_status apr_device_rows_open(apr_device_rows *m, const apr_grid *grid, apr_dtype dtype, const apr_cuda_factors *factors,
                                int64_t most_rows, uint8_t *device, apr_error *err)
{
    const apr_cuda_feedback_rows lanes = {.grid = grid_for_device(grid), .factors = factors, .n_rows = most_rows};
    apr_cuda_feedback_rows measured = lanes;
    uintptr_t n_bytes = 0;

    lay_out_parts(&measured, &n_bytes, factors->n);
    n_bytes += apr_align_up((uint64_t)most_rows * sizeof(double), 256);
    *m = (apr_device_rows){.on_device = lanes, .on_host = lanes, .dtype = dtype, .device = device, .host = aligned_alloc(256, n_bytes)};
    if (m->host == NULL) return apr_no_memory(err, "codes of rows");
    apr_lane_memory_lay_out(m, most_rows);
    return APR_OK;
}

void apr_device_rows_close(apr_device_rows *m)
{
    free(m->host);
    *m = (apr_device_rows){0};
}

/* ---- conversion to and from blocks ---- */

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

void apr_lanes_pack(apr_dtype dtype, const apr_cuda_feedback_rows *r, uint8_t *blocks)
{
    const apr_grid *const grid = apr_grid_of(dtype);
    const int64_t n_blocks = r->n_rows * r->factors->n / grid->elems, block_bytes = apr_row_bytes(dtype, grid->elems);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n_blocks; i++) pack_block(grid, r, blocks + i * block_bytes, i);
}
