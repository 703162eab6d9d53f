/* code.cu - the architecture of the running code (code.cuh). */
#include "kernels/cuda/device/code.cuh"

#include <atomic>
#include <cuda_runtime.h>

/* Any kernel will do, since all are compiled for the same architectures. */
static __global__ void k_any(void) {}

int apr_cuda_code_architecture(void)
{
    enum { MAX_DEVICES = 64 };
    static std::atomic<int> known[MAX_DEVICES];
    cudaFuncAttributes attributes;
    int device = 0;

    if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= MAX_DEVICES) return 0;
    if (known[device] == 0 && cudaFuncGetAttributes(&attributes, k_any) == cudaSuccess) known[device] = attributes.ptxVersion;
    return known[device];
}
