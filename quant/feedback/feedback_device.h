/* feedback_device.h - error feedback on a GPU: the same steps as feedback.h's, whose sums, factors and rows lie in its memory.
 *
 *     apr_feedback_plan_item(&plan, ...)         what will be made, before anything is allocated
 *     apr_feedback_device_open(&gpu, ..., plan)  allocates the plan's lines but for the sums
 *     apr_device_sums_add(gpu, &sums, ...)       each sum is allocated when its first inputs come
 *     apr_feedback_device_prepare(gpu, ...)      of one or more sums: factors, in place of those before
 *     apr_feedback_device_encode(gpu, ...)       rows of a matrix, as many at a time as the plan has room for
 *
 * Same algorithm, another order of sums: bytes are not the host's. What is promised, and tested, is the weighed error tr(E H E^T) of a
 * matrix: within 1.001 of the host's from the same sums. Sums are of inputs rounded to TF32 (kernels/cuda/api.h says the bound). */
#ifndef APR_QUANT_FEEDBACK_DEVICE_H
#define APR_QUANT_FEEDBACK_DEVICE_H

#include "kernels/cuda/api.h"
#include "quant/feedback/feedback.h"

/* In the order of the lines that are printed. */
typedef enum {
    APR_FEEDBACK_SUMS,      /* of inputs, at most so much at a time */
    APR_FEEDBACK_FACTORS,   /* of the widest matrix */
    APR_FEEDBACK_ROWS,      /* weights, errors, codes of rows that are worked on side by side */
    APR_FEEDBACK_LIBRARIES, /* workspaces of cuBLAS and cuSOLVER */
    APR_FEEDBACK_LINES
} apr_feedback_line;

typedef struct apr_feedback_plan {
    uint64_t bytes[APR_FEEDBACK_LINES];
    int64_t widest; /* columns */
} apr_feedback_plan;

extern const char *const apr_feedback_line_names[APR_FEEDBACK_LINES];

/* A matrix of n_rows rows of n. APR_E_UNSUPPORTED: it is wider than a device's kernels count. */
apr_status apr_feedback_plan_item(apr_feedback_plan *plan, apr_dtype dtype, int64_t n_rows, int64_t n, apr_error *err);
uint64_t apr_feedback_plan_bytes(const apr_feedback_plan *plan);
/* Bytes that sums of n inputs take there. */
uint64_t apr_device_sums_bytes(int64_t n);

typedef struct apr_feedback_device apr_feedback_device;

/* Sums of one feed; zeroed to begin with. */
typedef struct apr_device_sums {
    int64_t n, n_tokens;
    float *at; /* in the device's memory; NULL: nothing came yet */
} apr_device_sums;

/* The device stays the caller's, and must outlive it. */
apr_status apr_feedback_device_open(apr_feedback_device **gpu, const apr_cuda_api *cuda, apr_cuda_device *device,
                                    const apr_feedback_plan *plan, apr_error *err);
void apr_feedback_device_close(apr_feedback_device *gpu); /* NULL is fine; sums must have been dropped */
/* What factorises, in words. */
const char *apr_feedback_device_solver(const apr_feedback_device *gpu);

/* x [n_tokens, n]: in the device's memory, made before by whatever stream has finished; or on the host. When it returns x may go. */
apr_status apr_device_sums_add(apr_feedback_device *gpu, apr_device_sums *sums, int64_t n, const float *x, bool is_on_device,
                               int64_t n_tokens, apr_error *err);
void apr_device_sums_drop(apr_feedback_device *gpu, apr_device_sums *sums);

/* *is_empty: no token has brought anything but zeros, and there is nothing to feed back. Fails as apr_feedback_prepare. */
apr_status apr_feedback_device_prepare(apr_feedback_device *gpu, const apr_device_sums *const *sums, size_t n_sums,
                                       const apr_feedback_options *options, const char *what, bool *is_empty, apr_error *err);

/* Of n_rows rows those that there is room for at a time. */
int64_t apr_feedback_device_rows(const apr_feedback_device *gpu, apr_dtype dtype, int64_t n, int64_t n_rows);

/* As apr_feedback_encode, but `encoded` is filled here from the start: the encoder's blocks are made on the device, too. */
apr_status apr_feedback_device_encode(apr_feedback_device *gpu, apr_dtype dtype, const float *weights, int64_t n_rows,
                                      const apr_feedback_options *options, const char *what, void *encoded, apr_feedback_errors *errors,
                                      apr_error *err);

#endif
