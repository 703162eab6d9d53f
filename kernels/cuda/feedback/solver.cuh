/* solver.cuh - the functions of cuSOLVER that are used, as in cusolverDn.h: loaded at run time. */
#ifndef APR_KERNELS_CUDA_FEEDBACK_SOLVER_CUH
#define APR_KERNELS_CUDA_FEEDBACK_SOLVER_CUH

#include "kernels/cuda/feedback/feedback.cuh"

struct cusolver_functions {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*potrf_size)(void *handle, cublasFillMode_t triangle, int n, double *a, int stride, int *n_doubles);
    int (*potrf)(void *handle, cublasFillMode_t triangle, int n, double *a, int stride, double *work, int n_doubles, int *info);
};

#endif
