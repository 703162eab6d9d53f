/* small_gemm_wgmma.cu - the small GEMM with WGMMA (small_gemm_wgmma.cuh). Compiled for 9.0a where other files are compiled for 9.0 (Makefile). */
#include "kernels/cuda/small_gemm/small_gemm_wgmma.cuh"

#include <atomic>

template <apr_dtype D> static gemm_wgmma wgmma_of(void)
{
    return gemm_wgmma{D,
                      (const void *)k_small_gemm_wgmma<D, 1, false>,
                      {start_wgmma<D, 1, false>, start_wgmma<D, 2, false>, start_wgmma<D, 4, false>},
                      {start_wgmma<D, 1, true>, start_wgmma<D, 2, true>, start_wgmma<D, 4, true>}};
}

static std::atomic<bool> wgmma_allowed{true};
void apr_cuda_allow_wgmma(bool may) { wgmma_allowed = may; }

/* Queried once for each device: code for other architectures has no WGMMA. */
static bool has_warpgroups(const gemm_wgmma *w)
{
    enum { MAX_DEVICES = 64 };
    static std::atomic<signed char> known[MAX_DEVICES];
    cudaFuncAttributes attributes;
    int device = 0, major = 0, minor = 0;

    if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= MAX_DEVICES) return false;
    if (known[device] == 0) {
        cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
        if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
        if (error == cudaSuccess && 10 * major + minor == 90) error = cudaFuncGetAttributes(&attributes, w->any);
        known[device] = error == cudaSuccess && 10 * major + minor == 90 && attributes.ptxVersion == 90 ? 1 : -1;
    }
    return known[device] > 0;
}

const gemm_wgmma *apr_small_gemm_wgmma(apr_dtype dtype)
{
#define X(id) wgmma_of<APR_##id>(),
    static const gemm_wgmma all[] = {APR_SMALL_GEMM_WGMMA_TYPES(X)};
#undef X
    for (const gemm_wgmma &w : all)
        if (w.dtype == dtype) return wgmma_allowed && has_warpgroups(&w) ? &w : NULL;
    return NULL;
}
