/* device.cu - devices, their contexts and memory, and errors turned into messages. */
#include "kernels/cuda/device/device.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool apr_cuda_is_sticky(cudaError_t error)
{
    static const cudaError_t sticky[] = {
        cudaErrorIllegalAddress,
        cudaErrorLaunchTimeout,
        cudaErrorHardwareStackError,
        cudaErrorIllegalInstruction,
        cudaErrorMisalignedAddress,
        cudaErrorInvalidAddressSpace,
        cudaErrorInvalidPc,
        cudaErrorLaunchFailure,
        cudaErrorAssert,
        cudaErrorECCUncorrectable,
        cudaErrorNvlinkUncorrectable,
        cudaErrorContained,
        cudaErrorTensorMemoryLeak,
        cudaErrorUnknown,
        cudaErrorContextIsDestroyed,
        cudaErrorMpsClientTerminated,
    };
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++)
        if (sticky[i] == error) return true;
    return false;
}

apr_status apr_cuda_alive(const apr_cuda_device *device, apr_error *err)
{
    return device->lost ? apr_fail(err, APR_E_DEVICE, "%s", device->lost_text) : APR_OK;
}

apr_status apr_cuda_result(apr_cuda_device *device, cudaError_t error, const char *doing, apr_error *err)
{
    if (error == cudaSuccess) return APR_OK;
    cudaGetLastError(); /* clears an error that is not sticky */
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: the library has no code for %s (compute capability %d.%d)", doing, device->facts.name,
                        device->facts.major, device->facts.minor);
    if (!apr_cuda_is_sticky(error))
        return apr_fail(err, APR_E_DEVICE, "%s: %s (%s)", doing, cudaGetErrorString(error), cudaGetErrorName(error));
    device->lost = true;
    snprintf(device->lost_text, sizeof device->lost_text, "%s: %s (%s); this process cannot use the device any more", doing,
             cudaGetErrorString(error), cudaGetErrorName(error));
    return apr_cuda_alive(device, err);
}

apr_status apr_cuda_make_current(apr_cuda_device *device, apr_error *err)
{
    apr_cuda_count_write(device);
    return apr_cuda_make_current_to_read(device, err);
}

apr_status apr_cuda_make_current_to_read(apr_cuda_device *device, apr_error *err)
{
    int current = -1;
    APR_TRY(apr_cuda_alive(device, err));
    if (cudaGetDevice(&current) == cudaSuccess && current == device->facts.ordinal) return APR_OK;
    return apr_cuda_result(device, cudaSetDevice(device->facts.ordinal), "selecting the CUDA device", err);
}

const char *apr_cuda_operation(apr_cuda_device *device)
{
    apr_cuda_started *const s = &device->started;
    if (!s->is_operation) return s->words != NULL ? s->words : s->text;
    if (device->options.describe != NULL) device->options.describe(s->kind, &s->args, s->text, sizeof s->text);
    else snprintf(s->text, sizeof s->text, "operation %d", (int)s->kind);
    s->is_operation = false;
    s->words = NULL;
    return s->text;
}

void apr_cuda_begin(apr_cuda_device *device, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(device->started.text, sizeof device->started.text, format, arguments);
    va_end(arguments);
    device->started.is_operation = false;
    device->started.words = NULL;
}

void apr_cuda_begin_phase(apr_cuda_device *device, const char *words)
{
    device->started.is_operation = false;
    device->started.words = words;
}

apr_status apr_cuda_outcome(apr_cuda_device *device, cudaError_t error, apr_error *err)
{
    return error == cudaSuccess ? APR_OK : apr_cuda_result(device, error, apr_cuda_operation(device), err);
}

static apr_status count_devices(int *n, apr_error *err)
{
    *n = 0;
    const cudaError_t error = cudaGetDeviceCount(n);
    if (error == cudaSuccess && *n > 0) return APR_OK;
    *n = 0;
    cudaGetLastError();
    if (error == cudaSuccess || error == cudaErrorNoDevice) return apr_fail(err, APR_E_DEVICE, "there is no CUDA device");
    return apr_fail(err, APR_E_DEVICE, "cannot start CUDA: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}

/* All properties except those from NVML. */
static apr_status read_properties(int ordinal, apr_cuda_facts *facts, apr_error *err)
{
    cudaDeviceProp p;
    int n;

    memset(facts, 0, sizeof *facts);
    const apr_status status = count_devices(&n, err);
    if (status != APR_OK) return status;
    if (ordinal < 0 || ordinal >= n)
        return apr_fail(err, APR_E_USAGE, "there is no CUDA device %d; the devices here are 0 to %d", ordinal, n - 1);
    const cudaError_t error = cudaGetDeviceProperties(&p, ordinal);
    if (error != cudaSuccess) {
        cudaGetLastError();
        return apr_fail(err, APR_E_DEVICE, "CUDA device %d does not answer: %s", ordinal, cudaGetErrorString(error));
    }
    snprintf(facts->name, sizeof facts->name, "%s", p.name);
    snprintf(facts->bus, sizeof facts->bus, "%08X:%02X:%02X.0", p.pciDomainID, p.pciBusID, p.pciDeviceID);
    facts->ordinal = ordinal;
    facts->major = p.major;
    facts->minor = p.minor;
    facts->n_sms = p.multiProcessorCount;
    facts->threads_per_sm = p.maxThreadsPerMultiProcessor;
    facts->total_bytes = p.totalGlobalMem;
    facts->l2_bytes = p.l2CacheSize;
    facts->memory_bus_bits = p.memoryBusWidth;
    facts->is_integrated = p.integrated != 0;
    cudaDriverGetVersion(&facts->driver_version);
    cudaRuntimeGetVersion(&facts->runtime_version);
    facts->used_bytes = UINT64_MAX;
    return APR_OK;
}

static apr_status read_facts(int ordinal, apr_cuda_facts *facts, apr_error *err)
{
    APR_TRY(read_properties(ordinal, facts, err));
    apr_cuda_nvml_facts(facts);
    return APR_OK;
}

static void close_device(apr_cuda_device *device)
{
    if (device == NULL) return;
    /* every call of a lost context returns its error; the driver frees its memory when the process ends */
    if (!device->lost && cudaSetDevice(device->facts.ordinal) == cudaSuccess) {
        cudaStreamSynchronize(device->stream);
        apr_cuda_free_gemm_choices(device->choices);
        if (device->blas != NULL) cublasDestroy(device->blas);
        for (size_t i = 0; i < device->n_allocations; i++)
            if (device->allocations[i] != NULL) cudaFree(device->allocations[i]);
        for (size_t i = 0; i < device->n_pinned; i++) cudaFreeHost(device->pinned[i]);
        for (cudaEvent_t mark : device->marks)
            if (mark != NULL) cudaEventDestroy(mark);
        if (device->stream != NULL) cudaStreamDestroy(device->stream);
    }
    free(device->allocations);
    free(device->pinned);
    free(device);
}

static apr_status start_context(apr_cuda_device *device, apr_error *err)
{
    apr_status status = apr_cuda_result(device, cudaSetDevice(device->facts.ordinal), "creating the CUDA context", err);
    /* must precede the first launch, which allocates the stacks of all threads for good */
    if (status == APR_OK && device->options.stack_bytes > 0)
        status =
            apr_cuda_result(device, cudaDeviceSetLimit(cudaLimitStackSize, device->options.stack_bytes), "setting the stack size", err);
    if (status == APR_OK)
        status = apr_cuda_result(device, cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking), "creating a stream", err);
    return status;
}

static apr_status open_device(apr_cuda_device **opened, int ordinal, const apr_cuda_options *options, apr_error *err)
{
    *opened = NULL;
    apr_cuda_device *const device = (apr_cuda_device *)calloc(1, sizeof *device);
    if (device == NULL) return apr_no_memory(err, "the device");
    device->options = *options;
    apr_status status = read_properties(ordinal, &device->facts, err); /* without NVML, whose start takes 15 ms */
    if (status == APR_OK) status = start_context(device, err);
    if (status != APR_OK) {
        close_device(device);
        return status;
    }
    *opened = device;
    return APR_OK;
}

static bool is_lost(const apr_cuda_device *device) { return device->lost; }

static apr_status memory(apr_cuda_device *device, uint64_t *free_bytes, uint64_t *total_bytes, apr_error *err)
{
    size_t n_free = 0, n_total = 0;
    apr_status status = apr_cuda_make_current_to_read(device, err);
    if (status == APR_OK) status = apr_cuda_result(device, cudaMemGetInfo(&n_free, &n_total), "querying the free memory", err);
    *free_bytes = n_free;
    *total_bytes = n_total;
    return status;
}

/* Makes room for one more entry in a list that close_device frees. */
static apr_status grow_list(void ***list, size_t n, apr_error *err)
{
    void **const more = (void **)realloc(*list, (n + 1) * sizeof *more);
    if (more == NULL) return apr_no_memory(err, "the list of allocations");
    *list = more;
    return APR_OK;
}

static apr_status pin(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err)
{
    *p = NULL;
    if (n_bytes == 0) return APR_OK;
    APR_TRY(apr_cuda_make_current(device, err));
    APR_TRY(grow_list(&device->pinned, device->n_pinned, err));
    const bool drill = ++device->n_asked == device->options.fail_allocation;
    const cudaError_t error = drill ? cudaErrorMemoryAllocation : cudaHostAlloc(p, n_bytes, cudaHostAllocDefault);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return apr_fail(err, APR_E_DEVICE, "%s: cannot allocate the %.1f MiB of '%s' as pinned host memory", device->facts.name,
                        (double)n_bytes / 0x1p20, what);
    }
    if (error != cudaSuccess) return apr_cuda_result(device, error, what, err);
    device->pinned[device->n_pinned++] = *p;
    return APR_OK;
}

static apr_status allocate(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err)
{
    *p = NULL;
    if (n_bytes == 0) return APR_OK;
    const apr_status status = apr_cuda_make_current(device, err);
    if (status != APR_OK) return status;
    APR_TRY(grow_list(&device->allocations, device->n_allocations, err));
    const bool drill = ++device->n_asked == device->options.fail_allocation;
    const cudaError_t error = drill ? cudaErrorMemoryAllocation : cudaMalloc(p, n_bytes);
    if (error == cudaErrorMemoryAllocation) {
        size_t n_free = 0, n_total = 0;
        cudaGetLastError();
        cudaMemGetInfo(&n_free, &n_total);
        return apr_fail(err, APR_E_DEVICE, "%s: cannot allocate the %.1f MiB of '%s'; %.1f MiB are free", device->facts.name,
                        (double)n_bytes / 0x1p20, what, (double)n_free / 0x1p20);
    }
    if (error != cudaSuccess) return apr_cuda_result(device, error, what, err);
    device->allocations[device->n_allocations++] = *p;
    return APR_OK;
}

static void release_pinned(apr_cuda_device *device, void *p)
{
    for (size_t i = 0; i < device->n_pinned; i++)
        if (device->pinned[i] == p) {
            if (!device->lost && cudaSetDevice(device->facts.ordinal) == cudaSuccess) cudaFreeHost(p);
            device->pinned[i] = device->pinned[--device->n_pinned];
            return;
        }
}

static void release(apr_cuda_device *device, void *p)
{
    apr_cuda_count_write(device); /* the next allocation may reuse this memory */
    release_pinned(device, p);
    for (size_t i = 0; i < device->n_allocations && p != NULL; i++)
        if (device->allocations[i] == p) {
            if (!device->lost && cudaSetDevice(device->facts.ordinal) == cudaSuccess) cudaFree(p);
            device->allocations[i] = NULL;
            return;
        }
}

static apr_status copy(apr_cuda_device *device, void *to, const void *from, uint64_t n_bytes, cudaMemcpyKind kind, apr_error *err)
{
    const bool writes = kind == cudaMemcpyHostToDevice;
    const char *const doing = writes ? "copying to the device" : "copying from the device";
    apr_status status = (writes ? apr_cuda_make_current : apr_cuda_make_current_to_read)(device, err);
    if (status != APR_OK || n_bytes == 0) return status;
    status = apr_cuda_result(device, cudaMemcpyAsync(to, from, n_bytes, kind, device->stream), doing, err);
    if (status != APR_OK) return status;
    const cudaError_t error = cudaStreamSynchronize(device->stream);
    if (error == cudaSuccess) return APR_OK;
    const char *const last = apr_cuda_operation(device);
    char after[640];
    snprintf(after, sizeof after, "%s, after %s", doing, last[0] != '\0' ? last : "no operation");
    return apr_cuda_result(device, error, after, err);
}

static apr_status upload(apr_cuda_device *device, void *to, const void *from, uint64_t n_bytes, apr_error *err)
{
    return copy(device, to, from, n_bytes, cudaMemcpyHostToDevice, err);
}

static apr_status download(apr_cuda_device *device, void *to, const void *from, uint64_t n_bytes, apr_error *err)
{
    return copy(device, to, from, n_bytes, cudaMemcpyDeviceToHost, err);
}

static apr_status send(apr_cuda_device *device, void *to, const void *pinned, uint64_t n_bytes, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    const cudaError_t error = cudaMemcpyAsync(to, pinned, n_bytes, cudaMemcpyHostToDevice, device->stream);
    return apr_cuda_result(device, error, "sending to the device", err);
}

static apr_status receive(apr_cuda_device *device, void *pinned, const void *from, uint64_t n_bytes, apr_error *err)
{
    APR_TRY(apr_cuda_make_current_to_read(device, err));
    const cudaError_t error = cudaMemcpyAsync(pinned, from, n_bytes, cudaMemcpyDeviceToHost, device->stream);
    return apr_cuda_result(device, error, "receiving from the device", err);
}

/* Runs after the work queued on the source's stream. The target's stream need not wait for it, since the copy is complete on return. Peer
 * access is not enabled: it would map each card's memory into the other's context, which takes memory that no plan counts.
 * cudaMemcpyPeerAsync works without it, through the driver's pinned host memory if there is no shorter way. */
static apr_status transfer(apr_cuda_device *from_device, const void *from, apr_cuda_device *to_device, void *to, uint64_t n_bytes,
                           apr_error *err)
{
    APR_TRY(apr_cuda_make_current(to_device, err));
    const cudaError_t pending = cudaStreamSynchronize(to_device->stream); /* queued work that still reads the memory at `to` */
    if (pending != cudaSuccess) return apr_cuda_outcome(to_device, pending, err);
    APR_TRY(apr_cuda_make_current_to_read(from_device, err));
    if (n_bytes == 0) return APR_OK;
    cudaError_t error = cudaMemcpyPeerAsync(to, to_device->facts.ordinal, from, from_device->facts.ordinal, n_bytes, from_device->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(from_device->stream);
    if (error == cudaSuccess) return APR_OK;
    const char *const last = apr_cuda_operation(from_device);
    char doing[640];
    snprintf(doing, sizeof doing, "copying from GPU %d to GPU %d, after %s", from_device->facts.ordinal, to_device->facts.ordinal,
             last[0] != '\0' ? last : "no operation");
    return apr_cuda_result(from_device, error, doing, err);
}

static apr_status set_mark(apr_cuda_device *device, int mark, apr_error *err)
{
    cudaEvent_t *const event = &device->marks[mark];
    cudaError_t error = cudaSuccess;
    APR_TRY(apr_cuda_make_current_to_read(device, err));
    if (*event == NULL) error = cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventBlockingSync);
    if (error == cudaSuccess) error = cudaEventRecord(*event, device->stream);
    return apr_cuda_result(device, error, "recording an event", err);
}

/* Writes nothing to the device struct, since another thread may use it. */
static void wait_mark(apr_cuda_device *device, int mark)
{
    if (device->marks[mark] != NULL) cudaEventSynchronize(device->marks[mark]);
}

static apr_status clear(apr_cuda_device *device, void *p, uint64_t n_bytes, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    return apr_cuda_result(device, cudaMemsetAsync(p, 0, n_bytes, device->stream), "clearing memory", err);
}

static apr_status check(apr_cuda_device *device, const char *stage, apr_error *err)
{
    const apr_status status = apr_cuda_make_current_to_read(device, err);
    if (status != APR_OK) return status;
    const cudaError_t done = cudaStreamSynchronize(device->stream), pending = cudaGetLastError();
    const cudaError_t error = done != cudaSuccess ? done : pending;
    if (error == cudaSuccess) return APR_OK;
    const char *const last = apr_cuda_operation(device);
    char doing[640];
    snprintf(doing, sizeof doing, "%s, in or before %s", stage, last[0] != '\0' ? last : "the first operation");
    return apr_cuda_result(device, error, doing, err);
}

static void check_each(apr_cuda_device *device, bool on) { device->options.check_each = on; }

/* Sets the division of a multiprocessor's memory between L1 cache and shared memory. A kernel that wants another division than the previous
 * one waits until that has finished. */
static apr_status expect_decode_gemv(apr_cuda_device *device, bool on, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    return apr_cuda_result(device, cudaDeviceSetCacheConfig(on ? cudaFuncCachePreferShared : cudaFuncCachePreferNone),
                           "setting the shared memory carveout", err);
}

static void use_fp8(apr_cuda_device *device, bool on) { device->fp8 = on; }
static void use_tiles(apr_cuda_device *device, bool on) { device->tiles = on; }
static void use_exact(apr_cuda_device *device, bool on) { device->exact = on; }
static void use_batch_invariant(apr_cuda_device *device, bool on) { device->batch_invariant = on; }

#ifndef APR_CUDA_ARCHITECTURES
#define APR_CUDA_ARCHITECTURES ""
#endif
#if APR_CUDA_INTERFACE == 0
#error "the interface number is missing: compile with the Makefile, which includes cuda_interface.h"
#endif

extern "C" {
extern __attribute__((visibility("default"))) const apr_cuda_description apr_cuda_build;
const apr_cuda_description apr_cuda_build = {APR_CUDA_MARK, APR_CUDA_ABI, APR_CUDA_ARCHITECTURES};
}

extern "C" __attribute__((visibility("default"))) const apr_cuda_api *apr_cuda_plugin(uint64_t abi)
{
    static const apr_cuda_api api = {
        .abi = APR_CUDA_ABI,
        .architectures = APR_CUDA_ARCHITECTURES,
        .count = count_devices,
        .facts = read_facts,
        .open = open_device,
        .close = close_device,
        .is_lost = is_lost,
        .memory = memory,
        .alloc = allocate,
        .release = release,
        .pin = pin,
        .send = send,
        .receive = receive,
        .mark = set_mark,
        .wait_mark = wait_mark,
        .upload = upload,
        .download = download,
        .transfer = transfer,
        .clear = clear,
        .start_blas = apr_cuda_start_blas,
        .takes = apr_cuda_takes,
        .takes_packing = apr_cuda_takes_packing,
        .decode_f16 = apr_cuda_decode_f16,
        .use_tiles = use_tiles,
        .use_exact = use_exact,
        .use_batch_invariant = use_batch_invariant,
        .use_fp8 = use_fp8,
        .backend = &apr_cuda_backend,
        .run = apr_cuda_run,
        .has_decode_gemv = apr_cuda_has_decode_gemv,
        .expect_decode_gemv = expect_decode_gemv,
        .to_tiles = apr_cuda_run_to_tiles,
        .decode_gemv = apr_cuda_run_decode_gemv,
        .decode_gemv_inputs = apr_cuda_run_decode_gemv_inputs,
        .experts = apr_cuda_run_experts,
        .qkv_epilogue = apr_cuda_run_qkv_epilogue,
        .latent_query = apr_cuda_run_latent_query,
        .latent_store = apr_cuda_run_latent_store,
        .attend_to_i16 = apr_cuda_run_attend_to_i16,
        .prompt = apr_cuda_run_prompt,
        .has_rows = apr_cuda_has_rows,
        .rows = apr_cuda_run_rows,
        .rows_inputs = apr_cuda_run_rows_inputs,
        .rows_experts = apr_cuda_run_rows_experts,
        .topk = apr_cuda_topk,
        .topk_rows = apr_cuda_topk_rows,
        .column_squares = apr_cuda_column_squares,
        .compare_logits = apr_cuda_compare_logits,
        .record = apr_cuda_record,
        .end_record = apr_cuda_end_record,
        .replay = apr_cuda_replay,
        .forget = apr_cuda_free_graph,
        .check = check,
        .check_each = check_each,
        .probe = apr_cuda_run_probe,
        .bandwidth = apr_cuda_measure_bandwidth,
        .codecs = &apr_cuda_codec_table,
        .feedback = &apr_cuda_feedback_table,
        .grad = &apr_cuda_grad_table,
    };
    return abi == APR_CUDA_ABI ? &api : NULL;
}
