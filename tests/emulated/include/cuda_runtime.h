/* cuda_runtime.h - what the library's sources use of CUDA's language and runtime, for a compiler of the host. Found before the toolkit's,
 * which need not be there. What threads are is in ../threads.h, what a device is in ../device.cpp. */
#ifndef APR_TESTS_EMULATED_CUDA_RUNTIME_H
#define APR_TESTS_EMULATED_CUDA_RUNTIME_H

#include "tests/emulated/threads.h"

/* --- the language --- */

#define __host__
#define __device__
#define __global__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

extern "C" {
#include "formats/number/half.h"
}

#include <math.h>
#include <stdint.h>
#include <string.h>

struct int2 {
    int x, y;
} __align__(8);
struct int4 {
    int x, y, z, w;
} __align__(16);
struct uint2 {
    unsigned x, y;
} __align__(8);
struct uint4 {
    unsigned x, y, z, w;
} __align__(16);
struct ushort4 {
    unsigned short x, y, z, w;
} __align__(8);
struct float2 {
    float x, y;
} __align__(8);
struct float4 {
    float x, y, z, w;
} __align__(16);
struct double2 {
    double x, y;
} __align__(16);
struct uchar4 {
    unsigned char x, y, z, w;
} __align__(4);
struct char4 {
    signed char x, y, z, w;
} __align__(4);
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

static inline int2 make_int2(int x, int y) { return int2{x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return int4{x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return float2{x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }

/* Of the thread that is running. */
using emulated::blockDim;
using emulated::blockIdx;
using emulated::gridDim;
using emulated::threadIdx;

namespace emulated
{
uint64_t shuffle(uint32_t mask, uint64_t value, int from);
struct votes {
    uint32_t ballot, most, who;
};
votes vote(uint32_t mask, uint32_t value);

template <typename T> static inline T shuffle_from(uint32_t mask, T value, int from)
{
    static_assert(sizeof(T) <= 8, "as CUDA has it");
    uint64_t wide = 0;
    memcpy(&wide, &value, sizeof value);
    wide = shuffle(mask, wide, from);
    memcpy(&value, &wide, sizeof value);
    return value;
}
template <typename TO, typename FROM> static inline TO same_bits(FROM from)
{
    static_assert(sizeof(TO) == sizeof(FROM), "the same bits");
    TO to;
    memcpy(&to, &from, sizeof to);
    return to;
}
} // namespace emulated

static inline void __syncthreads(void) { emulated::meet_block(); }
static inline void __syncwarp(uint32_t mask = 0xffffffffu) { emulated::meet(mask, NULL); }
template <typename T> static inline T __shfl_sync(uint32_t mask, T value, int from, int width = 32)
{
    const int lane = emulated::self->lane;
    return emulated::shuffle_from(mask, value, (lane & ~(width - 1)) | (from & (width - 1)));
}
template <typename T> static inline T __shfl_xor_sync(uint32_t mask, T value, int turned) /* of a whole warp */
{
    return emulated::shuffle_from(mask, value, emulated::self->lane ^ turned);
}
static inline int __any_sync(uint32_t mask, int holds) { return emulated::vote(mask, holds != 0).ballot != 0; }
static inline int __all_sync(uint32_t mask, int holds)
{
    const emulated::votes v = emulated::vote(mask, holds != 0);
    return v.ballot == v.who;
}
static inline uint32_t __ballot_sync(uint32_t mask, int holds) { return emulated::vote(mask, holds != 0).ballot; }
static inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value) { return emulated::vote(mask, value).most; }

/* One thread runs at a time: what it wrote is seen. */
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}
[[noreturn]] static inline void __trap(void) { emulated::wrong("__trap()"); }

template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldcg(const T *p) { return *p; }
template <typename T> static inline T __ldcs(const T *p) { return *p; }

template <typename T> static inline T atomicAdd(T *p, T n)
{
    const T before = *p;
    *p += n;
    return before;
}
template <typename T> static inline T atomicMax(T *p, T n)
{
    const T before = *p;
    if (n > before) *p = n;
    return before;
}

static inline float __uint_as_float(uint32_t u) { return emulated::same_bits<float>(u); }
static inline uint32_t __float_as_uint(float f) { return emulated::same_bits<uint32_t>(f); }
static inline float __int_as_float(int i) { return emulated::same_bits<float>(i); }
static inline int __float_as_int(float f) { return emulated::same_bits<int>(f); }
static inline double __longlong_as_double(long long i) { return emulated::same_bits<double>(i); }
static inline long long __double_as_longlong(double d) { return emulated::same_bits<long long>(d); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; } /* nearly, there */
/* What does not fit is the nearest int, and NaN is 0. */
static inline int __float2int_rn(float f)
{
    if (isnan(f)) return 0;
    return f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? INT32_MIN : (int)rintf(f);
}
static inline float sinpif(float x) { return (float)sin(M_PI * fmod((double)x, 2.0)); }
static inline float cospif(float x) { return (float)cos(M_PI * fmod((double)x, 2.0)); }
static inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline int __popc(uint32_t x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
static inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static inline uint32_t __funnelshift_rc(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift < 32 ? shift : 32));
}
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector)
{
    const uint64_t both = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= (uint32_t)(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return out;
}

static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

/* --- the runtime --- */

#define EMULATED_ERRORS(X)                                                                     \
    X(Success, "no error")                                                                     \
    X(ErrorInvalidValue, "invalid argument")                                                   \
    X(ErrorMemoryAllocation, "out of memory")                                                  \
    X(ErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(ErrorNoDevice, "no CUDA-capable device is detected")                                     \
    X(ErrorInvalidDevice, "invalid device ordinal")                                            \
    X(ErrorNoKernelImageForDevice, "no kernel image is available for execution on the device") \
    X(ErrorInvalidDeviceFunction, "invalid device function")                                   \
    X(ErrorIllegalAddress, "an illegal memory access was encountered")                         \
    X(ErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")       \
    X(ErrorLaunchTimeout, "the launch timed out and was terminated")                           \
    X(ErrorHardwareStackError, "hardware stack error")                                         \
    X(ErrorIllegalInstruction, "an illegal instruction was encountered")                       \
    X(ErrorMisalignedAddress, "misaligned address")                                            \
    X(ErrorInvalidAddressSpace, "operation not supported on global/shared address space")      \
    X(ErrorInvalidPc, "invalid program counter")                                               \
    X(ErrorLaunchFailure, "unspecified launch failure")                                        \
    X(ErrorAssert, "device-side assert triggered")                                             \
    X(ErrorECCUncorrectable, "uncorrectable ECC error encountered")                            \
    X(ErrorNvlinkUncorrectable, "uncorrectable NVLink error detected during the execution")    \
    X(ErrorContained, "Invalid access of peer GPU memory over nvlink or a hardware error")     \
    X(ErrorTensorMemoryLeak, "tensor memory not completely freed")                             \
    X(ErrorContextIsDestroyed, "context is destroyed")                                         \
    X(ErrorMpsClientTerminated, "MPS client terminated")                                       \
    X(ErrorNotSupported, "operation not supported")                                            \
    X(ErrorUnknown, "unknown error")
#define X(name, words) cuda##name,
typedef enum cudaError { EMULATED_ERRORS(X) } cudaError_t;
#undef X

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef enum cudaDataType_t { CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F, CUDA_R_8F_E4M3 } cudaDataType_t;

typedef enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
} cudaMemcpyKind;
typedef enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal } cudaStreamCaptureMode;
typedef enum cudaLimit { cudaLimitStackSize } cudaLimit;
typedef enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared } cudaFuncCache;
typedef enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize,
    cudaFuncAttributePreferredSharedMemoryCarveout
} cudaFuncAttribute;
typedef enum cudaDeviceAttr {
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrComputeCapabilityMinor,
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrMaxSharedMemoryPerBlockOptin,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor,
    cudaDevAttrL2CacheSize,
    cudaDevAttrClockRate,
    cudaDevAttrMemoryClockRate,
    cudaDevAttrGlobalMemoryBusWidth,
} cudaDeviceAttr;
enum {
    cudaStreamNonBlocking = 1,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostRegisterPortable = 1,
};

typedef struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor, l2CacheSize, memoryBusWidth, integrated;
    int pciDomainID, pciBusID, pciDeviceID;
    size_t totalGlobalMem, sharedMemPerBlockOptin;
} cudaDeviceProp;

typedef struct cudaFuncAttributes {
    int ptxVersion, binaryVersion;
} cudaFuncAttributes;

typedef enum cudaLaunchAttributeID {
    cudaLaunchAttributeClusterDimension,
    cudaLaunchAttributeProgrammaticStreamSerialization,
} cudaLaunchAttributeID;
typedef struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        struct {
            unsigned x, y, z;
        } clusterDim;
        int programmaticStreamSerializationAllowed;
    } val;
} cudaLaunchAttribute;
typedef struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
} cudaLaunchConfig_t;

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError(void);

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value);
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total);
cudaError_t cudaMalloc(void **p, size_t n_bytes);
template <typename T> static inline cudaError_t cudaMalloc(T **p, size_t n_bytes) { return cudaMalloc((void **)p, n_bytes); }
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t n_bytes, unsigned flags);
cudaError_t cudaMallocHost(void **p, size_t n_bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t n_bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaMemset(void *p, int value, size_t n_bytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t n_bytes, cudaStream_t stream = NULL);
cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind, cudaStream_t stream = NULL);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t n_bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = NULL);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaEventDestroy(cudaEvent_t event);

/* --- launches --- */

namespace emulated
{
cudaError_t launch(const void *kernel, const cudaLaunchConfig_t *config, std::function<void()> body);
cudaError_t set_dynamic_most(const void *kernel, int n_bytes);

/* What kernel<<<blocks, threads, n_shared, stream>>> becomes (rewrite.sed): called with the kernel's arguments, it starts it. */
template <typename... PARAMETERS> struct launcher {
    void (*kernel)(PARAMETERS...);
    cudaLaunchConfig_t config;
    void operator()(PARAMETERS... args) const
    {
        void (*const k)(PARAMETERS...) = kernel;
        launch((const void *)k, &config, [=] { k(args...); });
    }
};
template <typename... PARAMETERS>
static inline launcher<PARAMETERS...> on(void (*kernel)(PARAMETERS...), dim3 blocks, dim3 threads, size_t n_shared = 0,
                                         cudaStream_t stream = NULL)
{
    return launcher<PARAMETERS...>{kernel, cudaLaunchConfig_t{blocks, threads, n_shared, stream, NULL, 0}};
}
} // namespace emulated

template <typename... PARAMETERS, typename... ARGS>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(PARAMETERS...), ARGS &&...args)
{
    return emulated::launch((const void *)kernel, config, [kernel, args...] { kernel(args...); });
}

template <typename K> static inline cudaError_t cudaFuncSetAttribute(K *kernel, cudaFuncAttribute attribute, int value)
{
    return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize ? emulated::set_dynamic_most((const void *)kernel, value) : cudaSuccess;
}
/* All devices share the variables of the library. */
template <typename T> static inline cudaError_t cudaGetSymbolAddress(void **p, T &symbol)
{
    *p = (void *)&symbol;
    return cudaSuccess;
}
template <typename K> static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, K *)
{
    attributes->ptxVersion = attributes->binaryVersion = __CUDA_ARCH__ / 10;
    return cudaSuccess;
}

#endif
