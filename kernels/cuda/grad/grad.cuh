/* grad.cuh - training on a device: what the files of the operations share. Numbers are float32, kernels/host/grad is the definition.
 *
 * A rounded number in the forward pass or in attention changes all gradients, and soft caps and norms enlarge that. A rounded number in the
 * gradient of a layer's input or weight changes little. So there are three kinds of products (products.cu), which all add in float32:
 *
 *     y = x W^T            x and W as sums of two FP16 numbers (22 bits): three products of FP16
 *     attention, heads     float32
 *     dy W, dy^T x         rounded to TF32 (11 bits, to the nearest)
 *
 * With use_exact (kernels/cuda/api.h) all of them multiply float32. Each sum has one order, which depends on shapes alone. */
#ifndef APR_KERNELS_CUDA_GRAD_CUH
#define APR_KERNELS_CUDA_GRAD_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/reduce.cuh"

enum { GRAD_THREADS = 256 };

typedef apr_status (*grad_fn)(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);

static inline const float *grad_in(const apr_grad_call *c, int i) { return (const float *)c->in[i]; }
static inline const float *grad_weight(const apr_grad_call *c, int i) { return (const float *)c->weight[i]; }
static inline const float *grad_d_out(const apr_grad_call *c) { return (const float *)c->d_out; }
static inline float *grad_d_in(const apr_grad_call *c, int i) { return (float *)c->d_in[i]; }
static inline float *grad_d_weight(const apr_grad_call *c, int i) { return (float *)c->d_weight[i]; }
static inline int64_t grad_n_out(const apr_grad_call *c) { return c->n_rows * c->width_out; }

/* --- a thread for each number --- */

template <typename F> static __global__ void __launch_bounds__(GRAD_THREADS) k_each(F f, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * GRAD_THREADS + threadIdx.x;
    if (i < n) f(i);
}

template <typename F> static apr_status grad_each(apr_cuda_device *device, const F &f, int64_t n, apr_error *err)
{
    if (n > 0) k_each<F><<<blocks_of(n, GRAD_THREADS), GRAD_THREADS, 0, device->stream>>>(f, n);
    return apr_cuda_outcome(device, cudaGetLastError(), err);
}

/* --- sums over rows: of slices of rows first, then of slices --- */

static inline int64_t grad_slices(int64_t n_rows, int64_t n)
{
    const int64_t fitting = ((int64_t)1 << 18) / n, slices = fitting < 64 ? 64 : fitting > 1024 ? 1024 : fitting;
    return slices < n_rows ? slices : n_rows;
}

/* Numbers of scratch memory. */
static inline size_t grad_columns_work(int64_t n_rows, int64_t n) { return (size_t)(grad_slices(n_rows, n) * n); }

template <typename F>
static __global__ void __launch_bounds__(GRAD_THREADS) k_column_parts(F f, int64_t n_rows, int64_t n, int64_t slice, float *parts)
{
    const int64_t column = (int64_t)blockIdx.x * GRAD_THREADS + threadIdx.x, begin = blockIdx.y * slice;
    const int64_t end = begin + slice < n_rows ? begin + slice : n_rows;
    float sum = 0.0f;

    if (column >= n) return;
    for (int64_t r = begin; r < end; r++) sum += f(r, column);
    parts[blockIdx.y * n + column] = sum;
}

struct grad_add_parts {
    const float *parts;
    int64_t n_parts, n;
    float *to;
    __device__ void operator()(int64_t column) const
    {
        float sum = 0.0f;
        for (int64_t i = 0; i < n_parts; i++) sum += parts[i * n + column];
        to[column] += sum;
    }
};

/* to[column] += sum over rows of f(row, column) */
template <typename F>
static apr_status grad_add_columns(apr_cuda_device *device, const F &f, int64_t n_rows, int64_t n, float *work, float *to, apr_error *err)
{
    const int64_t n_slices = grad_slices(n_rows, n), slice = (n_rows + n_slices - 1) / n_slices;
    const dim3 blocks(blocks_of(n, GRAD_THREADS), (unsigned)n_slices);

    k_column_parts<F><<<blocks, GRAD_THREADS, 0, device->stream>>>(f, n_rows, n, slice, work);
    APR_TRY(apr_cuda_outcome(device, cudaGetLastError(), err));
    return grad_each(device, grad_add_parts{work, n_slices, n, to}, n, err);
}

/* The number at (row, column) of a matrix of n columns. */
struct grad_entry_of {
    const float *x;
    int64_t n;
    __device__ float operator()(int64_t row, int64_t column) const { return x[row * n + column]; }
};

/* --- products: products.cu --- */

/* To the nearest number of 11 bits, halves away from zero. */
static __device__ __forceinline__ float grad_tf32(float x)
{
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? x : __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}

struct grad_round {
    const float *from;
    float *to;
    __device__ void operator()(int64_t i) const { to[i] = grad_tf32(from[i]); }
};

/* What the numbers of a product are. Those of GRAD_TF32 are float32 that was rounded already. */
enum grad_numbers { GRAD_FLOAT32, GRAD_TF32, GRAD_F16 };

/* Number (i, j) of matrix b is at[b * batch + i * row + j * column]; row or column is 1. */
struct grad_matrix {
    const void *at;
    int64_t row, column, batch;
};
static inline grad_matrix grad_rows_of(const void *at, int64_t row, int64_t batch) { return grad_matrix{at, row, 1, batch}; }
static inline grad_matrix grad_turned(grad_matrix m) { return grad_matrix{m.at, m.column, m.row, m.batch}; }

/* c[m, n] = a[m, k] b[k, n], or c += a b, of each batch; c is float32. */
struct grad_product {
    grad_matrix a, b;
    float *c;
    int64_t c_row, c_batch, m, n, k, n_batches;
    bool adds;
    grad_numbers numbers; /* of a and b */
};
apr_status grad_multiply(apr_cuda_device *device, const grad_product *product, apr_error *err);

/* --- the operations --- */

apr_status grad_linear_forward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_linear_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
size_t grad_linear_work(const apr_grad_call *call);

/* attend.cu */
apr_status grad_attend_forward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_attend_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
size_t grad_attend_work(const apr_grad_call *call);

/* lookups.cu */
apr_status grad_embed_forward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_embed_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_positions_forward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_positions_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_angles_forward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_rope_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_slice_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_join_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);

/* norm.cu */
apr_status grad_norm_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
size_t grad_norm_work(const apr_grad_call *call);

/* elementwise.cu */
apr_status grad_glu_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_gate_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_scale_forward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_scale_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_mul_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
size_t grad_mul_work(const apr_grad_call *call);
apr_status grad_softcap_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);
apr_status grad_add_backward(apr_cuda_device *device, const apr_grad_call *call, apr_error *err);

/* loss.cu */
apr_status grad_divergence(apr_cuda_device *device, const float *teacher, float *student, int64_t n_rows, int64_t width, double factor,
                           bool gradient, double *kl, apr_error *err);
apr_status grad_first_not_finite(apr_cuda_device *device, const float *x, int64_t n, uint64_t *found, apr_error *err);

/* optimizer.cu */
apr_status grad_stored(apr_cuda_device *device, const float *x, int64_t n, apr_dtype dtype, float *to, apr_error *err);
apr_status grad_adamw(apr_cuda_device *device, const apr_cuda_adam *adam, float rate, float decay, const float *gradient, int64_t n,
                      float *x, float *mean, float *power, apr_error *err);

#endif
