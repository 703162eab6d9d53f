/* session_upload.h - uploads to a device: noted first as a list of loads, then run all at once.
 *
 *     apr_loads loads = {0};
 *     apr_load_rows(&loads, tensor, APR_LOAD_TILED, to, err) ...      in the order of the file, so that it is read sequentially
 *     apr_loads_run(&loads, &target, err);                            returns when everything is on the device, or fails
 *     loads.list[i].out_of_range                                      of tensors that were decoded
 *     apr_loads_close(&loads);
 *
 * Tensors and apr_repack structs are borrowed until then. A run pins up to 64 MiB of host memory and releases it again; more if a single row
 * is longer than 4 MiB. Truncating the file meanwhile raises a fault on its pages, as everywhere (formats/files/map.h). */
#ifndef APR_RUNTIME_SESSION_UPLOAD_H
#define APR_RUNTIME_SESSION_UPLOAD_H

#include "kernels/cuda/api.h"
#include "kernels/repack.h"

typedef struct apr_load apr_load;

struct apr_load {
    /* Writes rows [first, first + n) to `staging`, as the device gets them. */
    void (*fill)(apr_load *load, int64_t first, int64_t n, uint8_t *staging, float *decoded);
    const uint8_t *bytes;
    const apr_tensor *tensor;
    const apr_repack *repack;
    apr_canonical_section piece;
    int64_t n_rows, rows_at_once, n_decoded; /* chunks are multiples of rows_at_once; n_decoded: float32 numbers a row */
    size_t row_bytes, device_row_bytes;      /* of a row as it is sent, and as it is on the device */
    bool tiled;
    uint8_t *to;
    apr_out_of_range out_of_range;
    int64_t chunk_rows, first_chunk; /* rows a chunk; index of the first chunk */
};

/* A zeroed one is empty and may be closed. */
typedef struct apr_loads {
    apr_load *list;
    size_t n, capacity;
    uint64_t n_bytes; /* of all loads */
} apr_loads;

typedef enum {
    APR_LOAD_STORED, /* the tensor's bytes, its rows in logical order */
    APR_LOAD_F16,    /* decoded, as FP16 */
    APR_LOAD_TILED   /* the bytes, tiled (kernels/cuda/decode_gemv_args.h) */
} apr_load_format;

apr_status apr_load_bytes(apr_loads *loads, const uint8_t *bytes, uint64_t n_bytes, uint8_t *to, apr_error *err);
apr_status apr_load_rows(apr_loads *loads, const apr_tensor *tensor, apr_load_format form, uint8_t *to, apr_error *err);
/* Repacks packed matrices: all pieces, to the addresses in `repack`. */
apr_status apr_load_repacked(apr_loads *loads, const apr_repack *repack, uint8_t *to, apr_error *err);

typedef struct apr_load_target {
    const apr_cuda_api *cuda;
    apr_cuda_device *device;
    void *scratch; /* device memory, at least APR_ROW_GROUP rows of what is tiled */
    uint64_t scratch_bytes;
    bool drops_pages; /* the device shares the host's memory: uploaded file pages are dropped from the page cache */
} apr_load_target;

apr_status apr_loads_run(apr_loads *loads, const apr_load_target *target, apr_error *err);
void apr_loads_close(apr_loads *loads);

#endif
