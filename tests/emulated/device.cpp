/* device.cpp - a device's memory, streams, graphs and events. Work given to a stream runs only when it is waited for, as late as CUDA
 * allows. So a test notices a result that is read too early, and a buffer that is overwritten before it is copied. APR_EMULATED_SMS says
 * how many multiprocessors there are (4), APR_EMULATED_MEMORY how many bytes (8 GiB), APR_EMULATED_DEVICES how many such devices (1). */
#include "tests/emulated/device.h"

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

using emulated::work;

struct CUgraph_st {
    std::vector<work> all;
};
struct CUgraphExec_st {
    std::vector<work> all;
};
struct CUstream_st {
    int device;
    std::deque<work> queue;
    CUgraph_st *recorded; /* NULL: it is not capturing */
};
struct CUevent_st {
    cudaStream_t stream;
    bool has_happened;
    std::chrono::steady_clock::time_point when;
};

namespace emulated
{

enum { MOST_DEVICES = 8 };

/* Everything below is one thread's at a time. */
static std::recursive_mutex lock;
static thread_local int current;
static thread_local cudaError_t last_error;
static cudaError_t lost[MOST_DEVICES]; /* after a fault nothing works on a device any more */
static size_t n_used[MOST_DEVICES];
static std::vector<cudaStream_t> streams;
static CUstream_st *null_streams[MOST_DEVICES];

struct allocation {
    size_t n_bytes;
    int device; /* -1: pinned memory of the host */
};
static std::map<const void *, allocation> allocations;
static std::map<const void *, size_t> most_dynamic;

static size_t number_of(const char *name, size_t otherwise)
{
    const char *const text = getenv(name);
    return text != NULL ? (size_t)strtoull(text, NULL, 10) : otherwise;
}

static int n_devices(void)
{
    const size_t n = number_of("APR_EMULATED_DEVICES", 1);
    return (int)(n < MOST_DEVICES ? n : (size_t)MOST_DEVICES);
}
static size_t total_bytes(void) { return number_of("APR_EMULATED_MEMORY", (size_t)8 << 30); }

static cudaError_t outcome(cudaError_t error)
{
    if (error == cudaSuccess) error = lost[current];
    if (error != cudaSuccess) last_error = error;
    return error;
}

static cudaStream_t stream_of(cudaStream_t stream)
{
    if (stream != NULL) return stream;
    if (null_streams[current] == NULL) {
        null_streams[current] = new CUstream_st{current, {}, NULL};
        streams.push_back(null_streams[current]);
    }
    return null_streams[current];
}

cudaError_t give(cudaStream_t given, work what)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    cudaStream_t const stream = stream_of(given);
    if (lost[current] != cudaSuccess) return outcome(lost[current]);
    if (stream->recorded != NULL) stream->recorded->all.push_back(what);
    else stream->queue.push_back(what);
    return cudaSuccess;
}

/* Until the stream is empty, or `event` has happened. */
static cudaError_t run(cudaStream_t stream, const CUevent_st *event = NULL)
{
    while (!stream->queue.empty() && (event == NULL || !event->has_happened)) {
        const work next = stream->queue.front();
        stream->queue.pop_front();
        if (lost[stream->device] != cudaSuccess) continue;
        if (!next()) lost[stream->device] = cudaErrorIllegalAddress;
    }
    return outcome(lost[stream->device]);
}

static cudaError_t run_all(void)
{
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i]->device == current) run(streams[i]);
    return outcome(cudaSuccess);
}

/* --- launches --- */

static size_t most_shared(void)
{
    const int arch = __CUDA_ARCH__;
    const size_t kib = arch < 800 ? 64 : arch == 800 ? 163 : arch < 900 ? 99 : arch < 1200 ? 227 : 99;
    return kib << 10;
}

cudaError_t set_dynamic_most(const void *kernel, int n_bytes)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (n_bytes < 0 || (size_t)n_bytes > most_shared()) return outcome(cudaErrorInvalidValue);
    most_dynamic[kernel] = (size_t)n_bytes;
    return cudaSuccess;
}

static bool is_possible(const grid &g, const void *kernel)
{
    const auto known = most_dynamic.find(kernel);
    const size_t most = known != most_dynamic.end() && known->second > 48 << 10 ? known->second : 48 << 10;
    const place &b = g.blocks, &t = g.threads;
    if (b.x < 1 || b.y < 1 || b.z < 1 || b.x > INT32_MAX || b.y > 65535 || b.z > 65535) return false;
    if (t.x < 1 || t.y < 1 || t.z < 1 || t.z > 64 || (size_t)t.x * t.y * t.z > 1024) return false;
    return g.dynamic_bytes <= most && g.n_in_cluster >= 1 && g.n_in_cluster <= 8 && b.x % g.n_in_cluster == 0;
}

cudaError_t launch(const void *kernel, const cudaLaunchConfig_t *c, std::function<void()> body)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    grid g = {{c->gridDim.x, c->gridDim.y, c->gridDim.z}, {c->blockDim.x, c->blockDim.y, c->blockDim.z}, 1, c->dynamicSmemBytes, body};
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) g.n_in_cluster = c->attrs[i].val.clusterDim.x;
    if (!is_possible(g, kernel)) return outcome(cudaErrorInvalidConfiguration);
    return give(c->stream, [=] { return run_grid(g); });
}

/* --- memory --- */

static cudaError_t allocate(void **p, size_t n_bytes, int device)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    *p = NULL;
    if (lost[current] != cudaSuccess) return outcome(lost[current]);
    if (device >= 0 && n_bytes > total_bytes() - n_used[device]) return outcome(cudaErrorMemoryAllocation);
    if (posix_memalign(p, 256, n_bytes > 0 ? n_bytes : 1) != 0) return outcome(cudaErrorMemoryAllocation);
    memset(*p, 0xff, n_bytes);
    if (device >= 0) n_used[device] += n_bytes;
    allocations[*p] = allocation{n_bytes, device};
    return cudaSuccess;
}

static cudaError_t release(void *p)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (p == NULL) return cudaSuccess;
    const auto at = allocations.find(p);
    if (at == allocations.end()) return outcome(cudaErrorInvalidValue);
    run_all(); /* what is under way ends first */
    if (at->second.device >= 0) n_used[at->second.device] -= at->second.n_bytes;
    allocations.erase(at);
    free(p);
    return cudaSuccess;
}

/* Device memory and pinned memory can be copied from and to later; other memory of the host is read and written before the call returns. */
static bool is_known(const void *p)
{
    auto at = allocations.upper_bound(p);
    if (at == allocations.begin()) return false;
    --at;
    return (const uint8_t *)p < (const uint8_t *)at->first + (at->second.n_bytes > 0 ? at->second.n_bytes : 1);
}

static cudaError_t copy(void *to, const void *from, size_t n_bytes, cudaStream_t stream, bool wait)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    const bool now = wait || !is_known(to) || !is_known(from);
    const cudaError_t error = give(stream, [=] { return n_bytes == 0 || memmove(to, from, n_bytes) != NULL; });
    return error == cudaSuccess && now && stream_of(stream)->recorded == NULL ? run(stream_of(stream)) : error;
}

static cudaError_t set(void *p, int value, size_t n_bytes, cudaStream_t stream)
{
    return give(stream, [=] { return n_bytes == 0 || memset(p, value, n_bytes) != NULL; });
}

} // namespace emulated

using namespace emulated;

cudaError_t cudaMalloc(void **p, size_t n_bytes) { return allocate(p, n_bytes, current); }
cudaError_t cudaFree(void *p) { return release(p); }
cudaError_t cudaHostAlloc(void **p, size_t n_bytes, unsigned) { return allocate(p, n_bytes, -1); }
cudaError_t cudaMallocHost(void **p, size_t n_bytes) { return allocate(p, n_bytes, -1); }
cudaError_t cudaFreeHost(void *p) { return release(p); }
cudaError_t cudaHostRegister(void *p, size_t n_bytes, unsigned)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (p == NULL || n_bytes == 0 || is_known(p)) return outcome(cudaErrorInvalidValue);
    allocations[p] = allocation{n_bytes, -1};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (allocations.find(p) == allocations.end()) return outcome(cudaErrorInvalidValue);
    run_all();
    allocations.erase(p);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
    *n_total = total_bytes(), *n_free = *n_total - n_used[current];
    return outcome(cudaSuccess);
}
cudaError_t cudaMemset(void *p, int value, size_t n_bytes) { return set(p, value, n_bytes, NULL); }
cudaError_t cudaMemsetAsync(void *p, int value, size_t n_bytes, cudaStream_t stream) { return set(p, value, n_bytes, stream); }
/* As late as CUDA may: memory of the host that is not pinned has been read when the call returns, but need not have arrived. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind)
{
    if (kind != cudaMemcpyHostToDevice || is_known(from)) return copy(to, from, n_bytes, NULL, kind != cudaMemcpyDeviceToDevice);
    const cudaError_t error = cudaStreamSynchronize(NULL);
    const auto staged = std::make_shared<std::vector<uint8_t>>((const uint8_t *)from, (const uint8_t *)from + n_bytes);
    return error != cudaSuccess ? error : give(NULL, [=] { return n_bytes == 0 || memcpy(to, staged->data(), n_bytes) != NULL; });
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind, cudaStream_t stream)
{
    return copy(to, from, n_bytes, stream, false);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t n_bytes, cudaStream_t stream)
{
    return copy(to, from, n_bytes, stream, false);
}

/* --- errors --- */

#define X(name, words) {#name, words},
static const struct {
    const char *name, *words;
} errors[] = {EMULATED_ERRORS(X)};
#undef X
const char *cudaGetErrorString(cudaError_t error) { return errors[error].words; }
const char *cudaGetErrorName(cudaError_t error)
{
    static thread_local char name[64];
    snprintf(name, sizeof name, "cuda%s", errors[error].name);
    return name;
}
cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error != cudaSuccess ? error : lost[current];
}

/* --- devices --- */

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = n_devices();
    return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= n_devices()) return outcome(cudaErrorInvalidDevice);
    current = device;
    return outcome(cudaSuccess);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof *p);
    p->major = __CUDA_ARCH__ / 100, p->minor = __CUDA_ARCH__ / 10 % 10;
    snprintf(p->name, sizeof p->name, "emulated device %d.%d", p->major, p->minor);
    p->multiProcessorCount = (int)number_of("APR_EMULATED_SMS", 4);
    p->maxThreadsPerMultiProcessor = 2048;
    p->l2CacheSize = 50 << 20;
    p->memoryBusWidth = 64;
    p->pciBusID = device + 1;
    p->totalGlobalMem = total_bytes();
    p->sharedMemPerBlockOptin = most_shared();
    return device >= 0 && device < n_devices() ? cudaSuccess : outcome(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp p;
    const cudaError_t error = cudaGetDeviceProperties(&p, device);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)most_shared(); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)most_shared() + (__CUDA_ARCH__ < 800 ? 0 : 1024); break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate: *value = 1000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    }
    return error;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return outcome(cudaSuccess); }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return outcome(cudaSuccess); }
cudaError_t cudaDeviceSynchronize(void)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    return run_all();
}
cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13000, cudaSuccess; }

/* --- streams, graphs, events --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    *stream = new CUstream_st{current, {}, NULL};
    streams.push_back(*stream);
    return outcome(cudaSuccess);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    run(stream);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream) streams.erase(streams.begin() + (ptrdiff_t)i--);
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (stream_of(stream)->recorded != NULL) return outcome(cudaErrorStreamCaptureUnsupported);
    return run(stream_of(stream));
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (lost[current] != cudaSuccess) return outcome(lost[current]);
    stream->recorded = new CUgraph_st();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    *graph = stream->recorded;
    stream->recorded = NULL;
    return outcome(*graph != NULL ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new CUgraphExec_st{graph->all};
    return outcome(cudaSuccess);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return outcome(cudaSuccess); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t error = outcome(cudaSuccess);
    for (size_t i = 0; i < exec->all.size() && error == cudaSuccess; i++) error = give(stream, exec->all[i]);
    return error;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new CUevent_st{NULL, true, std::chrono::steady_clock::now()};
    return outcome(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    event->stream = stream_of(stream), event->has_happened = false;
    return give(stream, [=] {
        event->when = std::chrono::steady_clock::now();
        return event->has_happened = true;
    });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    return event->stream != NULL && !event->has_happened ? run(event->stream, event) : outcome(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = std::chrono::duration<float, std::milli>(end->when - begin->when).count();
    return outcome(cudaSuccess);
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaEventSynchronize(event);
    delete event;
    return cudaSuccess;
}
