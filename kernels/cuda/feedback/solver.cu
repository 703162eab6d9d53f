/* solver.cu - handles, sums of inputs, and the function table of error feedback on a device.
 *
 * cuSOLVER is loaded by the first solver, and only for its Cholesky factorization, so other users do not need that library. Without it
 * factors are computed here (factorise.cu). */
#include "kernels/cuda/feedback/solver.cuh"

#include <dlfcn.h>
#include <stdlib.h>

enum { THREADS = 256, INFO_BYTES = 256 };

apr_status feedback_blas(cublasStatus_t status, const char *doing, apr_error *err)
{
    if (status == CUBLAS_STATUS_SUCCESS) return APR_OK;
    return apr_fail(err, APR_E_DEVICE, "%s: cuBLAS error: %s (%s)", doing, cublasGetStatusString(status), cublasGetStatusName(status));
}

/* Once loaded it stays, since cuSOLVER cannot be shut down. */
static const cusolver_functions *find_cusolver(void)
{
    static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"};
    static cusolver_functions f;
    void *library = NULL;

    if (f.create != NULL) return &f;
    for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return NULL;
    *(void **)&f.destroy = dlsym(library, "cusolverDnDestroy");
    *(void **)&f.set_stream = dlsym(library, "cusolverDnSetStream");
    *(void **)&f.potrf_size = dlsym(library, "cusolverDnDpotrf_bufferSize");
    *(void **)&f.potrf = dlsym(library, "cusolverDnDpotrf");
    *(void **)&f.create = dlsym(library, "cusolverDnCreate");
    const bool has_all = f.destroy != NULL && f.set_stream != NULL && f.potrf_size != NULL && f.potrf != NULL && f.create != NULL;
    if (has_all) return &f;
    f.create = NULL;
    dlclose(library);
    return NULL;
}

static const char *start_cusolver(apr_cuda_solver *s)
{
    s->functions = find_cusolver();
    if (s->functions == NULL) return "own Cholesky kernels: libcusolver.so.12 is not here";
    if (s->functions->create(&s->dense) == 0 && s->functions->set_stream(s->dense, s->device->stream) == 0) return "cuSOLVER";
    s->dense = NULL;
    return "own Cholesky kernels: cuSOLVER does not start on this device";
}

static void close_solver(apr_cuda_solver *s)
{
    if (s == NULL) return;
    if (!s->device->lost && cudaSetDevice(s->device->facts.ordinal) == cudaSuccess) {
        cudaStreamSynchronize(s->device->stream);
        if (s->dense != NULL) s->functions->destroy(s->dense);
        if (s->blas != NULL) cublasDestroy(s->blas);
    }
    free(s);
}

static apr_status open_solver(apr_cuda_device *device, void *workspace, uint64_t n_bytes, apr_cuda_solver **solver, const char **name,
                              apr_error *err)
{
    *solver = NULL;
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_solver *const s = (apr_cuda_solver *)calloc(1, sizeof *s);
    if (s == NULL) return apr_no_memory(err, "handles of the device's libraries");
    s->device = device;
    s->info = (int *)workspace;
    cublasStatus_t status = cublasCreate(&s->blas);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasSetStream(s->blas, device->stream);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasSetWorkspace(s->blas, (uint8_t *)workspace + INFO_BYTES, n_bytes - INFO_BYTES);
    if (status != CUBLAS_STATUS_SUCCESS) {
        close_solver(s);
        return feedback_blas(status, "starting cuBLAS for error feedback", err);
    }
    *name = start_cusolver(s);
    *solver = s;
    return APR_OK;
}

/* x is row major: to cuBLAS its transpose. */
static apr_status add(apr_cuda_solver *s, float *sums, int64_t n, const float *x, int64_t n_tokens, apr_error *err)
{
    const float one = 1.0f;
    APR_TRY(apr_cuda_make_current_to_read(s->device, err)); /* a read: kept inputs are not in these buffers */
    apr_cuda_begin_phase(s->device, "sums of a layer's inputs");
    return feedback_blas(cublasGemmEx(s->blas, CUBLAS_OP_N, CUBLAS_OP_T, (int)n, (int)n, (int)n_tokens, &one, x, CUDA_R_32F, (int)n, x,
                                      CUDA_R_32F, (int)n, &one, sums, CUDA_R_32F, (int)n, CUBLAS_COMPUTE_32F_FAST_TF32,
                                      CUBLAS_GEMM_DEFAULT),
                         "adding up a layer's inputs", err);
}

static __global__ void __launch_bounds__(THREADS) k_merge(float *__restrict__ h, const float *__restrict__ sums, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) h[i] += sums[i];
}

static apr_status merge(apr_cuda_solver *s, float *h, const float *sums, int64_t n, bool first, apr_error *err)
{
    const int64_t n_all = n * n;
    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin_phase(s->device, "merging the sums of a layer's inputs");
    if (first)
        return apr_cuda_outcome(s->device, cudaMemcpyAsync(h, sums, (size_t)n_all * sizeof *h, cudaMemcpyDeviceToDevice, s->device->stream),
                                err);
    k_merge<<<blocks_of(n_all, THREADS), THREADS, 0, s->device->stream>>>(h, sums, n_all);
    return apr_cuda_outcome(s->device, cudaGetLastError(), err);
}

static __global__ void __launch_bounds__(THREADS) k_diagonal(const float *h, int64_t n, float *diagonal)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) diagonal[i] = h[i * n + i];
}

static apr_status diagonal(apr_cuda_solver *s, const float *h, int64_t n, float *diagonal, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin_phase(s->device, "reading the diagonal of a Hessian");
    k_diagonal<<<blocks_of(n, THREADS), THREADS, 0, s->device->stream>>>(h, n, diagonal);
    return apr_cuda_outcome(s->device, cudaGetLastError(), err);
}

const apr_cuda_feedback apr_cuda_feedback_table = {
    .open = open_solver,
    .close = close_solver,
    .add = add,
    .merge = merge,
    .diagonal = diagonal,
    .factorise = apr_cuda_factorise,
    .finish = apr_cuda_finish_factors,
    .start = apr_cuda_start_rows,
    .errors = apr_cuda_row_errors,
    .round = apr_cuda_row_round,
    .descend = apr_cuda_row_descend,
    .refit = apr_cuda_row_refit,
    .objective = apr_cuda_row_objective,
};
