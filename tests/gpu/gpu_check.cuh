/* gpu_check.cuh - what the tests of launchers share: random numbers, arrays with a copy on the device, the worst error of each operation, a
 * clock, and a start and an end that cannot be taken for a pass when nothing was checked. */
#ifndef APR_TESTS_GPU_CHECK_CUH
#define APR_TESTS_GPU_CHECK_CUH

#include "kernels/cuda/common/ops.cuh"

extern "C" {
#include "formats/number/half.h"
#include "kernels/ref/ref_ops.h"
}

#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

static int n_failed, n_checks;

static inline void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

/* --- random numbers --- */

static uint64_t seed = 88172645463325252ull;
static inline uint32_t random_bits(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}
static inline float uniform(float low, float high) { return low + (high - low) * (float)(random_bits() & 0xffffff) / 16777216.0f; }
static inline float normal(void) { return (uniform(-1, 1) + uniform(-1, 1) + uniform(-1, 1)) * 1.0f; }
static inline std::vector<float> normals(int64_t n)
{
    std::vector<float> x((size_t)n);
    for (float &v : x) v = normal();
    return x;
}

/* --- memory: host arrays and their device copies, exact in size but for the rounding that weights are promised --- */

/* Waits for fills and copies of the default stream. They may return earlier, and the streams of devices do not wait for that stream. */
static inline void filled(void) { must(cudaStreamSynchronize(NULL), "filling memory"); }

template <typename T> struct device_copy {
    T *device;
    size_t n;
    explicit device_copy(size_t count, bool poison = true) : device(NULL), n(count)
    {
        must(cudaMalloc((void **)&device, n > 0 ? n * sizeof(T) : 1), "cudaMalloc");
        if (poison) must(cudaMemset(device, 0xff, n * sizeof(T)), "cudaMemset"), filled();
    }
    explicit device_copy(const std::vector<T> &host) : device_copy(host.size(), false)
    {
        must(cudaMemcpy(device, host.data(), n * sizeof(T), cudaMemcpyHostToDevice), "upload"), filled();
    }
    std::vector<T> get() const
    {
        std::vector<T> host(n);
        must(cudaDeviceSynchronize(), "kernel");
        must(cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost), "download");
        return host;
    }
    device_copy(const device_copy &) = delete;
    ~device_copy() { cudaFree(device); }
};

/* --- errors --- */

typedef struct worst {
    const char *name;
    double error, bound;
    int64_t n;
} worst;
static worst worsts[32];
static int n_worsts;
static std::vector<std::string> failures; /* the first ones, to be said again in the end */

static inline void note(const char *name, double error, double bound, const char *what)
{
    int i = 0;
    while (i < n_worsts && strcmp(worsts[i].name, name) != 0) i++;
    if (i == n_worsts) worsts[n_worsts++] = worst{name, 0, bound, 0};
    worsts[i].n++;
    n_checks++;
    if (!(error <= worsts[i].error)) worsts[i].error = error;
    if (error <= bound) return;
    if (n_failed++ >= 40) return;
    char line[256];
    snprintf(line, sizeof line, "FAIL %s %s: %g (at most %g)\n", name, what, error, bound);
    fputs(line, stdout);
    failures.push_back(line);
}

/* |out - ref| / |ref|, as vectors; NaN when one has a NaN. */
static inline double distance(const std::vector<float> &out, const float *ref)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < out.size(); i++) {
        difference += ((double)out[i] - ref[i]) * ((double)out[i] - ref[i]);
        norm += (double)ref[i] * ref[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static inline double differing(const void *a, const void *b, size_t n_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) n += ((const uint8_t *)a)[i] != ((const uint8_t *)b)[i];
    return (double)n;
}

/* --- sizes and times --- */

static inline int64_t row_bytes_of(apr_dtype dtype, int64_t n)
{
    return n / apr_dtypes[dtype].elems_per_block * apr_dtypes[dtype].bytes_per_block;
}

struct timer {
    cudaEvent_t begin, end;
    timer() { cudaEventCreate(&begin), cudaEventCreate(&end), cudaEventRecord(begin); }
    double ms()
    {
        float passed;
        cudaEventRecord(end), must(cudaEventSynchronize(end), "timing"), cudaEventElapsedTime(&passed, begin, end);
        cudaEventDestroy(begin), cudaEventDestroy(end);
        return passed;
    }
};

/* --- start and end --- */

typedef struct modes {
    bool tests, times;
    bool quick; /* leaves out what takes long */
} modes;

/* "quick" leaves the timings out, "times" the tests. Without a device the program ends with 77. */
static inline modes start(int argc, char **argv)
{
    int n_devices = 0;
    const bool quick = argc > 1 && strcmp(argv[1], "quick") == 0, only_times = argc > 1 && strcmp(argv[1], "times") == 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no device\n");
        exit(77);
    }
    must(cudaDeviceSetLimit(cudaLimitStackSize, 256), "stack limit");
    return modes{!only_times, !quick, quick};
}

/* Prints the worst error of each operation, and what failed. False when a check failed, or there was none. */
static inline bool all_within_bounds(const modes &m)
{
    for (int i = 0; i < n_worsts; i++)
        printf("%-40s worst %-10.3g bound %-8.2g %lld checks\n", worsts[i].name, worsts[i].error, worsts[i].bound, (long long)worsts[i].n);
    for (const std::string &line : failures) fputs(line.c_str(), stdout);
    printf("%d of %d checks failed\n", n_failed, n_checks);
    return n_failed == 0 && (n_checks > 0 || !m.tests);
}

/* The median of what a graph of the stream's work takes, us: eleven runs after three that warm up. */
template <class F> static double graph_us(F &&enqueue)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    enqueue(stream);
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiate(&ready, graph, 0), "graph");
    std::vector<float> times;
    for (int i = 0; i < 14; i++) {
        cudaEvent_t a, b;
        cudaEventCreate(&a), cudaEventCreate(&b);
        cudaEventRecord(a, stream), cudaGraphLaunch(ready, stream), cudaEventRecord(b, stream);
        must(cudaEventSynchronize(b), "replay");
        float ms;
        cudaEventElapsedTime(&ms, a, b);
        if (i >= 3) times.push_back(ms);
        cudaEventDestroy(a), cudaEventDestroy(b);
    }
    cudaGraphExecDestroy(ready), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
    std::sort(times.begin(), times.end());
    return 1e3 * times[times.size() / 2];
}

#endif
