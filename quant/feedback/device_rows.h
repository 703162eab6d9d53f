/* device_rows.h - the memory layout of rows on a device (apr_cuda_feedback_rows), the host copies of some arrays, and conversion to and from block
 * bytes.
 *
 * Codes, scales, minimums, d and dmin are contiguous, with the same layout on both sides, so that one copy transfers them all. The
 * functions are in feedback_device.c; they are declared here because tests of the device run single steps. */
#ifndef APR_QUANT_DEVICE_ROWS_H
#define APR_QUANT_DEVICE_ROWS_H

#include "kernels/cuda/api.h"
#include "quant/feedback/grid.h"

typedef struct apr_device_rows {
    apr_cuda_feedback_rows on_device; /* arrays in device memory */
    apr_cuda_feedback_rows on_host;   /* on the host: code to dmin, and objective; the rest is NULL */
    uint8_t *blocks;                  /* device memory: the blocks as they are stored */
    uint64_t parts_bytes;             /* bytes to copy, from `code` on */
    apr_dtype dtype;
    uint8_t *device, *host;
    uint64_t host_bytes; /* at `host` */
} apr_device_rows;

/* Bytes of device memory for n_rows rows. */
uint64_t apr_lane_bytes_of(const apr_grid *grid, apr_dtype dtype, int64_t n, int64_t n_rows);

/* device: apr_lane_bytes_of bytes for most_rows rows, owned by the caller. */
apr_status apr_device_rows_open(apr_device_rows *m, const apr_grid *grid, apr_dtype dtype, const apr_cuda_factors *factors,
                                int64_t most_rows, uint8_t *device, apr_error *err);
void apr_device_rows_close(apr_device_rows *m);

/* Converts blocks to arrays on the host. Uses all cores. */
void apr_lanes_unpack(apr_dtype dtype, const apr_cuda_feedback_rows *lanes, const uint8_t *blocks);

#endif
