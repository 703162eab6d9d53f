/* fake_device_internal.h - what fake_device.c, which has the memory, and fake_device_ops.c, which works on it, know of each other. */
#ifndef APR_TESTS_FAKE_DEVICE_INTERNAL_H
#define APR_TESTS_FAKE_DEVICE_INTERNAL_H

#include "formats/tensor/packing.h"
#include "tests/support/fake_device.h"

enum { MOST_BLOCKS = 512, MOST_PINNED = 4, MOST_SENT = 8, WORK_FLOATS = 1 << 20 };

typedef struct block {
    uint8_t *data;
    size_t n_bytes;
    bool unused; /* by anything here: it may not be touched any more */
} block;

/* Out of pinned memory, some time: until then it must stay as it is. */
typedef struct sending {
    void *to;
    const void *from;
    uint64_t n_bytes;
} sending;

/* Under the address sanitizer each block is malloc's, and poisoned while the device does not work. Otherwise blocks are parts of one
 * reservation. The host is given addresses at `memory`, which cannot be read or written. The bytes are at `own`, for the device's use, at
 * a constant distance. */
struct apr_cuda_device {
    block blocks[MOST_BLOCKS];
    int n_blocks, nth;
    uint8_t *memory, *own; /* NULL under the address sanitizer */
    size_t used;
    void *reserved;
    size_t n_reserved;
    float *work;
    struct apr_cuda_graph *recording; /* NULL: operations are run */
    void *pinned[MOST_PINNED];
    int n_pinned;
    sending sent[MOST_SENT]; /* and not there yet */
    int n_sent, n_arrived;   /* ever */
    int marks[APR_CUDA_MARKS];
};

/* The device begins (on) or ends to work: what was sent before is there by then. */
void fake_touch(apr_cuda_device *d, bool on);
/* Where the device itself finds the memory of an address. Other addresses stay what they are. */
void *fake_seen(const apr_cuda_device *d, const void *p);
/* The same of every pointer in a struct of arguments. */
void fake_see(const apr_cuda_device *d, void *args, size_t n_bytes);

/* A tensor with its scales and packing, whose structs are the host's, as the device sees it. */
typedef struct seen_tensor {
    apr_tensor tensor, scale, parts[5];
    apr_packing packing;
} seen_tensor;
/* NULL gives NULL. */
const apr_tensor *fake_see_tensor(const apr_cuda_device *d, const apr_tensor *tensor, seen_tensor *seen);

/* As in kernels/cuda/api.h: they run at once, or are recorded. */
apr_status fake_run(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err);
apr_status fake_topk(apr_cuda_device *device, const float *logits, int64_t n, int n_wanted, float temperature, void *work,
                     apr_cuda_topk_result *found, apr_error *err);
apr_status fake_column_squares(apr_cuda_device *device, const float *x, int64_t n_rows, int64_t width, double *sums, apr_error *err);
apr_status fake_compare_logits(apr_cuda_device *device, const float *reference, const float *other, int64_t n, int64_t n_rows,
                               const int32_t *next, apr_cuda_logits_difference *found, apr_error *err);
apr_status fake_topk_rows(apr_cuda_device *device, const float *logits, int64_t n, int64_t n_rows, const apr_topk *wishes, void *work,
                          uint64_t n_bytes, apr_cuda_topk_result *found, apr_error *err);
bool fake_has_rows(const apr_cuda_device *device, const apr_tensor *weight, int64_t n_out, int64_t n_in, int64_t widest,
                   const apr_workspace *work);
apr_status fake_record(apr_cuda_device *device, apr_error *err);
apr_status fake_end_record(apr_cuda_device *device, apr_cuda_graph **graph, apr_error *err);
apr_status fake_replay(apr_cuda_graph *graph, apr_error *err);
void fake_free_graph(apr_cuda_graph *graph);
bool fake_has_decode_gemv(const apr_cuda_device *device, apr_dtype dtype, int64_t n_out, int64_t n_in);
apr_status fake_expect_decode_gemv(apr_cuda_device *device, bool on, apr_error *err);
apr_status fake_decode_gemv(apr_cuda_device *device, const apr_decode_gemv_args *args, apr_error *err);
apr_status fake_decode_gemv_inputs(apr_cuda_device *device, const apr_decode_gemv_inputs *args, apr_error *err);
apr_status fake_qkv_epilogue(apr_cuda_device *device, const apr_qkv_epilogue_args *args, apr_error *err);
apr_status fake_attend_to_i16(apr_cuda_device *device, const apr_qkv_epilogue_args *qkv, const apr_attend_args *args,
                              uint8_t *activations_out, apr_error *err);
apr_status fake_prompt(apr_cuda_device *device, const apr_prompt_args *args, apr_error *err);

/* None was replayed. */
void fake_drop_replays(void);

#endif
