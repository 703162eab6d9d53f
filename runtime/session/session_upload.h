/* session_upload.h - loads: what a device gets of the host's memory, noted first and then brought there all at once.
 *
 *     apr_loads loads = {0};
 *     apr_load_rows(&loads, tensor, APR_LOAD_ITEMS, to, err) ...      in the order of the file, so that it is read so
 *     apr_loads_run(&loads, &target, err);                            everything is there, or a sentence
 *     loads.list[i].misfits                                           of what was decoded
 *     apr_loads_close(&loads);
 *
 * Tensors and relays are borrowed until then. Running takes up to 64 MiB of pinned memory on the host, and gives it back; more where a
 * single row is longer than 4 MiB. A file that is cut short meanwhile is a fault on its pages, as everywhere (formats/base/map.h). */
#ifndef APR_RUNTIME_SESSION_UPLOAD_H
#define APR_RUNTIME_SESSION_UPLOAD_H

#include "kernels/cuda/api.h"
#include "kernels/relay.h"

typedef struct apr_load apr_load;

struct apr_load {
    /* Rows [first, first + n), as the device gets them. */
    void (*fill)(apr_load *load, int64_t first, int64_t n, uint8_t *staging, float *decoded);
    const uint8_t *bytes;
    const apr_tensor *tensor;
    const apr_relay *relay;
    apr_regular_piece piece;
    int64_t n_rows, rows_at_once, n_decoded; /* pieces are whole multiples of rows_at_once; float32 numbers a row */
    size_t row_bytes, lying_bytes;           /* of a row as it is sent, and as it lies on the device */
    bool in_items;
    uint8_t *to;
    apr_misfits misfits;
    int64_t piece_rows, first_piece; /* as they were divided */
};

/* A zeroed one is empty and may be closed. */
typedef struct apr_loads {
    apr_load *list;
    size_t n, room;
    uint64_t n_bytes; /* in all */
} apr_loads;

typedef enum {
    APR_LOAD_STORED, /* the tensor's bytes, its rows in logical order */
    APR_LOAD_HALVES, /* decoded, as FP16 */
    APR_LOAD_ITEMS   /* the bytes, in items (kernels/cuda/flow_args.h) */
} apr_load_form;

apr_status apr_load_bytes(apr_loads *loads, const uint8_t *bytes, uint64_t n_bytes, uint8_t *to, apr_error *err);
apr_status apr_load_rows(apr_loads *loads, const apr_tensor *tensor, apr_load_form form, uint8_t *to, apr_error *err);
/* The regular form of packed matrices, all its pieces, to where the relay is. */
apr_status apr_load_regular(apr_loads *loads, const apr_relay *relay, uint8_t *to, apr_error *err);

typedef struct apr_load_target {
    const apr_cuda_api *cuda;
    apr_cuda_device *device;
    void *scratch; /* of the device, at least APR_FLOW_UNIT rows of what goes into items */
    uint64_t scratch_bytes;
    bool drops_pages; /* the device has the host's memory: what was sent of a file is not kept in the page cache */
} apr_load_target;

apr_status apr_loads_run(apr_loads *loads, const apr_load_target *target, apr_error *err);
void apr_loads_close(apr_loads *loads);

#endif
