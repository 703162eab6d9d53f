/* factorise.cu - the Cholesky factor of damped sums in float64, and what error feedback reads of it.
 *
 * The matrix is row major, with its lower triangle filled. To the column-major libraries that is the upper triangle of the same matrix, and
 * the factor L is U^T. Without cuSOLVER: blocks of 64 columns, each factorized by one thread block; cuBLAS then solves the rows below it
 * and updates the rest. */
#include "kernels/cuda/feedback/solver.cuh"

enum { TILE = 64, THREADS = 256 };

static __device__ __forceinline__ float at(const float *h, int64_t n, int64_t i, int64_t j) { return h[i >= j ? i * n + j : j * n + i]; }

static __global__ void __launch_bounds__(THREADS) k_reverse(const float *__restrict__ h, const int32_t *__restrict__ order, int64_t n,
                                                            double scale, double damping, double *__restrict__ l)
{
    const int64_t i = blockIdx.y, j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j >= n) return;
    if (j > i) {
        l[i * n + j] = 0.0;
        return;
    }
    const double damped = (double)at(h, n, order[n - 1 - i], order[n - 1 - j]) * scale + (i == j ? damping : 0.0);
    l[i * n + j] = i == j && !(damped > 0.0) ? 1.0 : damped;
}

/* Factorizes a diagonal tile in place; info: 1 if it is not positive definite. */
static __global__ void __launch_bounds__(THREADS) k_factorise_tile(double *l, int64_t n, int size, int *info)
{
    __shared__ double a[TILE][TILE + 1];
    for (int i = (int)threadIdx.x; i < size * size; i += THREADS) a[i / size][i % size] = l[i / size * n + i % size];
    __syncthreads();
    for (int k = 0; k < size; k++) {
        if (!(a[k][k] > 0.0)) {
            if (threadIdx.x == 0) *info = 1;
            return; /* all threads read the same number */
        }
        const double pivot = sqrt(a[k][k]);
        __syncthreads();
        for (int i = k + (int)threadIdx.x; i < size; i += THREADS) a[i][k] = i == k ? pivot : a[i][k] / pivot;
        __syncthreads();
        for (int e = (int)threadIdx.x; e < size * size; e += THREADS) {
            const int i = e / size, j = e % size;
            if (j > k && i >= j) a[i][j] -= a[i][k] * a[j][k];
        }
        __syncthreads();
    }
    for (int i = (int)threadIdx.x; i < size * size; i += THREADS)
        if (i % size <= i / size) l[i / size * n + i % size] = a[i / size][i % size];
}

static apr_status factorise_here(apr_cuda_solver *s, double *l, int64_t n, apr_error *err)
{
    const double one = 1.0, minus_one = -1.0;
    for (int64_t first = 0; first < n; first += TILE) {
        const int size = (int)(n - first < TILE ? n - first : (int64_t)TILE), rest = (int)(n - first) - size;
        double *const tile = l + first * n + first, *const below = tile + size * n, *const trailing = below + size;
        k_factorise_tile<<<1, THREADS, 0, s->device->stream>>>(tile, n, size, s->info);
        APR_TRY(apr_cuda_outcome(s->device, cudaGetLastError(), err));
        if (rest == 0) break;
        cublasStatus_t status = cublasDtrsm(s->blas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_T, CUBLAS_DIAG_NON_UNIT, size,
                                            rest, &one, tile, (int)n, below, (int)n);
        if (status == CUBLAS_STATUS_SUCCESS)
            status =
                cublasDsyrk(s->blas, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_T, rest, size, &minus_one, below, (int)n, &one, trailing, (int)n);
        APR_TRY(feedback_blas(status, "factorizing the Hessian of a layer", err));
    }
    return APR_OK;
}

/* By cuSOLVER, if it is available and its workspace is not larger than planned. *done: it was used. */
static apr_status factorise_there(apr_cuda_solver *s, double *l, int64_t n, void *work, bool *done, apr_error *err)
{
    int n_doubles = 0;

    *done = false;
    if (s->dense == NULL || s->functions->potrf_size(s->dense, CUBLAS_FILL_MODE_UPPER, (int)n, l, (int)n, &n_doubles) != 0) return APR_OK;
    if (n_doubles < 0 || (uint64_t)n_doubles * sizeof(double) > apr_cuda_solver_bytes(n)) return APR_OK;
    *done = true;
    const int status = s->functions->potrf(s->dense, CUBLAS_FILL_MODE_UPPER, (int)n, l, (int)n, (double *)work, n_doubles, s->info);
    if (status == 0) return APR_OK;
    return apr_fail(err, APR_E_DEVICE, "factorizing the Hessian of a layer of %lld inputs: cuSOLVER status %d", (long long)n, status);
}

apr_status apr_cuda_factorise(apr_cuda_solver *s, const apr_cuda_factors *f, double scale, double damping, double *l, void *work,
                              bool *done, apr_error *err)
{
    const dim3 grid(blocks_of(f->n, THREADS), (unsigned)f->n);
    int info = 1;
    bool was_used;

    *done = false;
    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin(s->device, "the factors of a layer of %lld inputs", (long long)f->n);
    APR_TRY(apr_cuda_outcome(s->device, cudaMemsetAsync(s->info, 0, sizeof *s->info, s->device->stream), err));
    k_reverse<<<grid, THREADS, 0, s->device->stream>>>(f->h, f->order, f->n, scale, damping, l);
    APR_TRY(apr_cuda_outcome(s->device, cudaGetLastError(), err));
    APR_TRY(factorise_there(s, l, f->n, work, &was_used, err));
    if (!was_used) APR_TRY(factorise_here(s, l, f->n, err));
    cudaError_t error = cudaMemcpyAsync(&info, s->info, sizeof info, cudaMemcpyDeviceToHost, s->device->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(s->device->stream);
    APR_TRY(apr_cuda_outcome(s->device, error, err));
    *done = info == 0;
    return APR_OK;
}

/* Elements j, k of R = L reversed: R_jk = l[n-1-j][n-1-k]. */
static __global__ void __launch_bounds__(THREADS)
    k_pull(const double *__restrict__ l, int64_t n, float *__restrict__ pull, float *__restrict__ pivot)
{
    const int64_t j = blockIdx.y, k = (int64_t)blockIdx.x * THREADS + threadIdx.x, column = n - 1 - k;
    if (k >= n) return;
    pull[j * n + k] = j < k ? (float)(l[(n - 1 - j) * n + column] * (1.0 / l[column * n + column])) : 0.0f;
    if (j == k) pivot[k] = (float)l[column * n + column];
}

/* Fills both triangles from the lower one: a thread of that writes two numbers, which no other thread reads or writes. */
static __global__ void __launch_bounds__(THREADS) k_damp(float *h, int64_t n, double scale, double damping, float *diagonal)
{
    const int64_t i = blockIdx.y, j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j > i) return;
    const double scaled = (double)h[i * n + j] * scale;
    if (i != j) {
        h[i * n + j] = h[j * n + i] = (float)scaled;
        return;
    }
    const double damped = scaled + damping;
    h[i * n + i] = diagonal[i] = damped > 0.0 ? (float)damped : 1.0f;
}

apr_status apr_cuda_finish_factors(apr_cuda_solver *s, const apr_cuda_factors *f, double scale, double damping, const double *l,
                                   apr_error *err)
{
    const dim3 grid(blocks_of(f->n, THREADS), (unsigned)f->n);

    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin(s->device, "the factors of a layer of %lld inputs", (long long)f->n);
    k_pull<<<grid, THREADS, 0, s->device->stream>>>(l, f->n, f->pull, f->pivot);
    k_damp<<<grid, THREADS, 0, s->device->stream>>>(f->h, f->n, scale, damping, f->diagonal);
    return apr_cuda_outcome(s->device, cudaGetLastError(), err);
}
