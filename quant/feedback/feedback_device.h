/* feedback_device.h - error feedback on a GPU: the steps of feedback.h, with sums, factors and rows in device memory.
 *
 *     apr_feedback_plan_item(&plan, ...)         adds a matrix to the plan, before anything is allocated
 *     apr_feedback_device_open(&gpu, ..., plan)  allocates the plan's lines, except the sums
 *     apr_device_sums_add(gpu, &sums, ...)       allocates a sum at its first inputs
 *     apr_feedback_device_prepare(gpu, ...)      computes the factors of one or more merged sums, replacing earlier ones
 *     apr_feedback_device_encode(gpu, ...)       encodes rows of a matrix, as many at a time as the plan allows
 *
 * The algorithm is the same, but sums are added in another order, so bytes differ from the host's. The guarantee, which is tested: the
 * weighted error tr(E H E^T) of a matrix is within 1.001 of the host's, from the same sums. Inputs are rounded to TF32
 * (see kernels/cuda/api.h). */
#ifndef APR_QUANT_FEEDBACK_DEVICE_H
#define APR_QUANT_FEEDBACK_DEVICE_H

#include "kernels/cuda/api.h"
#include "quant/feedback/feedback.h"

/* In the order in which the lines are printed. */
typedef enum {
    APR_FEEDBACK_SUMS,      /* sums of inputs, the most at any time */
    APR_FEEDBACK_FACTORS,   /* factors of the widest matrix */
    APR_FEEDBACK_ROWS,      /* weights, errors and codes of the rows processed together */
    APR_FEEDBACK_LIBRARIES, /* workspaces of cuBLAS and cuSOLVER */
    APR_FEEDBACK_LINES
} apr_feedback_line;

typedef struct apr_feedback_plan {
    uint64_t bytes[APR_FEEDBACK_LINES];
    int64_t widest; /* columns */
} apr_feedback_plan;

extern const char *const apr_feedback_line_names[APR_FEEDBACK_LINES];

/* Adds a matrix of n_rows rows of n. APR_E_UNSUPPORTED: it is wider than the kernels' grids allow. */
apr_status apr_feedback_plan_item(apr_feedback_plan *plan, apr_dtype dtype, int64_t n_rows, int64_t n, apr_error *err);
uint64_t apr_feedback_plan_bytes(const apr_feedback_plan *plan);
/* Bytes of device memory for the sums of n inputs. */
uint64_t apr_device_sums_bytes(int64_t n);

typedef struct apr_feedback_device apr_feedback_device;

/* The sum of x x^T over the inputs of one layer; zero-initialize. */
typedef struct apr_device_sums {
    int64_t n, n_tokens;
    float *at; /* in device memory; NULL: no inputs yet */
} apr_device_sums;

/* The caller owns the device, which must outlive the object. */
apr_status apr_feedback_device_open(apr_feedback_device **gpu, const apr_cuda_api *cuda, apr_cuda_device *device,
                                    const apr_feedback_plan *plan, apr_error *err);
void apr_feedback_device_close(apr_feedback_device *gpu); /* NULL is fine; sums must have been dropped */
/* The name of the library that factorizes. */
const char *apr_feedback_device_solver(const apr_feedback_device *gpu);

/* x [n_tokens, n]: in device memory, written by work that has finished, or on the host. It may be freed when the call returns. */
apr_status apr_device_sums_add(apr_feedback_device *gpu, apr_device_sums *sums, int64_t n, const float *x, bool is_on_device,
                               int64_t n_tokens, apr_error *err);
void apr_device_sums_drop(apr_feedback_device *gpu, apr_device_sums *sums);

/* *is_empty: all inputs were zero, so there is nothing to feed back. Fails as apr_feedback_prepare does. */
apr_status apr_feedback_device_prepare(apr_feedback_device *gpu, const apr_device_sums *const *sums, size_t n_sums,
                                       const apr_feedback_options *options, const char *what, bool *is_empty, apr_error *err);

/* How many of n_rows rows fit at a time. */
int64_t apr_feedback_device_rows(const apr_feedback_device *gpu, apr_dtype dtype, int64_t n, int64_t n_rows);

/* As apr_feedback_encode, but `encoded` is output only: the ordinary encoder also runs on the device. */
apr_status apr_feedback_device_encode(apr_feedback_device *gpu, apr_dtype dtype, const float *weights, int64_t n_rows,
                                      const apr_feedback_options *options, const char *what, void *encoded, apr_feedback_errors *errors,
                                      apr_error *err);

#endif
