/* abreast_wide.cu - the small GEMM with WGMMA (abreast_wide.cuh). Compiled for 9.0a where other files are compiled for 9.0 (Makefile). */
#include "kernels/cuda/ops/abreast_wide.cuh"

#include <atomic>

template <apr_dtype D> static abreast_wide wide_of(void)
{
    return abreast_wide{D,
                        (const void *)k_abreast_wide<D, 1, false>,
                        {start_wide<D, 1, false>, start_wide<D, 2, false>, start_wide<D, 4, false>},
                        {start_wide<D, 1, true>, start_wide<D, 2, true>, start_wide<D, 4, true>}};
}

static std::atomic<bool> may_multiply{true};
void apr_cuda_let_warpgroups(bool may) { may_multiply = may; }

/* Queried once for each device: code for other architectures has no WGMMA. */
static bool has_warpgroups(const abreast_wide *w)
{
    enum { MOST_DEVICES = 64 };
    static std::atomic<signed char> known[MOST_DEVICES];
    cudaFuncAttributes attributes;
    int device = 0, major = 0, minor = 0;

    if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= MOST_DEVICES) return false;
    if (known[device] == 0) {
        cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
        if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
        if (error == cudaSuccess && 10 * major + minor == 90) error = cudaFuncGetAttributes(&attributes, w->any);
        known[device] = error == cudaSuccess && 10 * major + minor == 90 && attributes.ptxVersion == 90 ? 1 : -1;
    }
    return known[device] > 0;
}

const abreast_wide *apr_abreast_wide(apr_dtype dtype)
{
#define X(id) wide_of<APR_##id>(),
    static const abreast_wide all[] = {APR_ABREAST_WIDE_TYPES(X)};
#undef X
    for (const abreast_wide &w : all)
        if (w.dtype == dtype) return may_multiply && has_warpgroups(&w) ? &w : NULL;
    return NULL;
}
