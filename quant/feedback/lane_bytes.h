/* lane_bytes.h - rows as a device works on them (apr_cuda_lanes): where their parts lie in its memory, the twins of some of them on the
 * host, and the way from blocks' bytes and back.
 *
 * Codes, scales, minimums, d and dmin lie one behind another, on both sides alike, so that they are copied at once. */
#ifndef APR_QUANT_LANE_BYTES_H
#define APR_QUANT_LANE_BYTES_H

#include "kernels/cuda/api.h"
#include "quant/feedback/grid.h"

typedef struct apr_lane_memory {
    apr_cuda_lanes there; /* in the device's memory */
    apr_cuda_lanes here;  /* code to dmin and objective, on the host; the rest is NULL */
    uint8_t *blocks;      /* the device's: bytes as they are stored */
    uint64_t parts_bytes; /* from `code` on, what is copied */
    apr_dtype dtype;
    uint8_t *device, *host;
} apr_lane_memory;

/* Bytes of the device's memory for n_rows rows. */
uint64_t apr_lane_bytes_of(const apr_grid *grid, apr_dtype dtype, int64_t n, int64_t n_rows);

/* device: apr_lane_bytes_of bytes for most_rows rows, the caller's. */
apr_status apr_lane_memory_open(apr_lane_memory *m, const apr_grid *grid, apr_dtype dtype, const apr_cuda_factors *factors,
                                int64_t most_rows, uint8_t *device, apr_error *err);
void apr_lane_memory_cut(apr_lane_memory *m, int64_t n_rows); /* for so many */
void apr_lane_memory_close(apr_lane_memory *m);

/* All cores. lanes: on the host. */
void apr_lanes_unpack(apr_dtype dtype, const apr_cuda_lanes *lanes, const uint8_t *blocks);
void apr_lanes_pack(apr_dtype dtype, const apr_cuda_lanes *lanes, uint8_t *blocks);

#endif
