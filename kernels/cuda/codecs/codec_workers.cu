/* codec_workers.cu - workers: pinned host buffers, their copies on the device, and a stream on which portions are decoded and encoded. */
#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/device/device.cuh"

#include <algorithm>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; earlier kernels allocate pages when they are pinned */
#endif

static const size_t MAX_REGISTERED = (size_t)1 << 28;

/* Host and device memory have the same layout: a buffer has the same offset in both. */
struct worker {
    apr_cuda_worker host; /* must be first: the caller's view */
    int ordinal;
    cudaStream_t stream;
    uint8_t *pinned, *mirror; /* host, device */
    size_t registered_bytes;  /* bytes of `pinned` if they are our own registered pages; 0: allocated by the driver */
    float *values;            /* decoded, on the device */
    codec_out_of_range *found;
    apr_cuda_worker_sizes sizes;
    apr_cuda_portion portion; /* started last */
};

static launch_decode_fn decoder_of(apr_dtype dtype)
{
    const launch_decode_fn found[] = {decoder_of_plain(dtype), decoder_of_blocks(dtype), decoder_of_k(dtype), decoder_of_iq(dtype)};
    for (launch_decode_fn launch : found)
        if (launch != nullptr) return launch;
    return nullptr;
}

launch_encode_fn apr_cuda_encoder_of(apr_dtype dtype)
{
    const launch_encode_fn found[] = {encoder_of_plain(dtype), encoder_of_blocks(dtype), encoder_of_q4_q5_k(dtype),
                                      encoder_of_q6_k(dtype),  encoder_of_steps(dtype),  encoder_of_step_scales(dtype),
                                      encoder_of_q2_k(dtype),  encoder_of_points(dtype)};
    for (launch_encode_fn launch : found)
        if (launch != nullptr) return launch;
    return nullptr;
}

launch_encode_by_fn apr_cuda_encoder_by_of(apr_dtype dtype)
{
    const launch_encode_by_fn found[] = {encoder_by_of_blocks(dtype), encoder_by_of_q4_q5_k(dtype),     encoder_by_of_q6_k(dtype),
                                         encoder_by_of_steps(dtype),  encoder_by_of_step_scales(dtype), encoder_by_of_q2_k(dtype),
                                         encoder_by_of_points(dtype)};
    for (launch_encode_by_fn launch : found)
        if (launch != nullptr) return launch;
    return nullptr;
}

static bool decodes(apr_dtype dtype) { return decoder_of(dtype) != nullptr; }
static bool encodes(apr_dtype dtype) { return apr_cuda_encoder_of(dtype) != nullptr; }
static bool encodes_by(apr_dtype dtype) { return apr_cuda_encoder_by_of(dtype) != nullptr; }

static apr_status result(cudaError_t error, const char *doing, const apr_cuda_portion *portion, apr_error *err)
{
    if (error == cudaSuccess) return APR_OK;
    if (!apr_cuda_is_sticky(error)) cudaGetLastError();
    if (portion == nullptr)
        return apr_fail(err, error == cudaErrorMemoryAllocation ? APR_E_MEMORY : APR_E_DEVICE, "%s: %s (%s)", doing,
                        cudaGetErrorString(error), cudaGetErrorName(error));
    return apr_fail(err, APR_E_DEVICE, "%s %lld values from %s to %s: %s (%s)", doing, (long long)portion->n_elems,
                    apr_dtypes[portion->from].name, apr_dtypes[portion->to].name, cudaGetErrorString(error), cudaGetErrorName(error));
}

/* The device address of a host buffer. */
template <class T> static T *mirrored(const worker *l, T *p) { return (T *)(l->mirror + ((uint8_t *)p - l->pinned)); }

/* Registering own pages, which are populated already and large if possible, is six times faster than the driver's pinned allocation. If
 * that fails, the driver allocates. */
static cudaError_t pin(worker *l, size_t n_bytes)
{
    const bool is_large = n_bytes > MAX_REGISTERED; /* populating a large size could exhaust memory; cudaHostAlloc fails instead */
    void *const p = is_large ? MAP_FAILED : mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return cudaHostAlloc((void **)&l->pinned, n_bytes, cudaHostAllocPortable);
    madvise(p, n_bytes, MADV_HUGEPAGE);
    madvise(p, n_bytes, MADV_POPULATE_WRITE);
    const cudaError_t error = cudaHostRegister(p, n_bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) {
        l->pinned = (uint8_t *)p;
        l->registered_bytes = n_bytes;
        return cudaSuccess;
    }
    munmap(p, n_bytes);
    if (apr_cuda_is_sticky(error)) return error;
    cudaGetLastError();
    return cudaHostAlloc((void **)&l->pinned, n_bytes, cudaHostAllocPortable);
}

static void unpin(worker *l)
{
    if (l->registered_bytes == 0) {
        cudaFreeHost(l->pinned);
        return;
    }
    cudaHostUnregister(l->pinned);
    munmap(l->pinned, l->registered_bytes);
}

static void close_worker(apr_cuda_worker *host)
{
    worker *const l = (worker *)host;
    if (l == nullptr) return;
    cudaSetDevice(l->ordinal);
    if (l->stream != nullptr) {
        cudaStreamSynchronize(l->stream);
        cudaStreamDestroy(l->stream);
    }
    unpin(l);
    cudaFree(l->mirror);
    cudaFree(l->values);
    free(l);
}

/* Offsets in the pinned memory and its mirror, and the bytes of the decoded values. */
struct places {
    size_t factors, out, scales, importance, found, total;
    size_t values_bytes;
};

static places places_of(const apr_cuda_worker_sizes *s)
{
    places p;
    p.factors = apr_cuda_round(s->in_bytes);
    p.out = p.factors + apr_cuda_round(4 * (size_t)s->n_factors);
    p.scales = p.out + apr_cuda_round(s->out_bytes);
    p.importance = p.scales + apr_cuda_round(4 * (size_t)s->n_rows);
    p.found = p.importance + apr_cuda_round(4 * (size_t)s->n_importance);
    p.total = p.found + apr_cuda_round(sizeof(codec_out_of_range));
    p.values_bytes = 4 * (size_t)s->n_elems + 256;
    return p;
}

/* The driver allocates pages of 2 MiB. */
static size_t in_pages(size_t n_bytes) { return (n_bytes + (1 << 21) - 1) >> 21 << 21; }

static apr_status check_memory(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, int n_workers, apr_error *err)
{
    const places p = places_of(sizes);
    const size_t wanted = (size_t)n_workers * (in_pages(p.total) + in_pages(p.values_bytes));
    size_t n_free = 0, n_total = 0;

    cudaError_t error = cudaSetDevice(device->facts.ordinal);
    if (error == cudaSuccess) error = cudaMemGetInfo(&n_free, &n_total);
    APR_TRY(result(error, "querying the free memory", nullptr, err));
    if (wanted <= n_free) return APR_OK;
    return apr_fail(err, APR_E_MEMORY, "encoding on the GPU needs %.0f MiB of its memory, but %.0f MiB are free; --device host needs none",
                    (double)wanted / 0x1p20, (double)n_free / 0x1p20);
}

static apr_status allocate(worker *l, apr_error *err)
{
    const places p = places_of(&l->sizes);

    APR_TRY(result(cudaSetDevice(l->ordinal), "selecting the CUDA device", nullptr, err));
    APR_TRY(result(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), "creating a stream", nullptr, err));
    APR_TRY(result(pin(l, p.total), "pinning memory for a conversion", nullptr, err));
    APR_TRY(result(cudaMalloc((void **)&l->mirror, p.total), "device memory for a conversion", nullptr, err));
    APR_TRY(result(cudaMalloc((void **)&l->values, p.values_bytes), "device memory for a conversion", nullptr, err));
    l->host.in = l->pinned;
    l->host.factors = (float *)(l->pinned + p.factors);
    l->host.out = l->pinned + p.out;
    l->host.row_scales = (float *)(l->pinned + p.scales);
    l->host.importance = (float *)(l->pinned + p.importance);
    l->found = (codec_out_of_range *)(l->pinned + p.found);
    return APR_OK;
}

static apr_status open_worker(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, apr_cuda_worker **opened, apr_error *err)
{
    *opened = nullptr;
    worker *const l = (worker *)calloc(1, sizeof *l);
    if (l == nullptr) return apr_no_memory(err, "a worker of the conversion");
    l->ordinal = device->facts.ordinal;
    l->sizes = *sizes;
    const apr_status status = allocate(l, err);
    if (status != APR_OK) {
        close_worker(&l->host);
        return status;
    }
    *opened = &l->host;
    return APR_OK;
}

static cudaError_t decode(const worker *l)
{
    const apr_cuda_portion *const p = &l->portion;
    const bool scaled = p->factors_wide > 0;
    const codec_factors factors = {scaled ? mirrored(l, l->host.factors) : nullptr, p->columns, p->factors_wide, p->factors_group};
    return decoder_of(p->from)(mirrored(l, l->host.in), l->values, p->n_elems, &factors, &mirrored(l, l->found)->n_nonfinite, l->stream);
}

static cudaError_t encode(const worker *l)
{
    const apr_cuda_portion *const p = &l->portion;
    uint8_t *const out = mirrored(l, l->host.out);
    if (p->n_importance > 0 && encodes_by(p->to)) {
        const codec_importance importance = {mirrored(l, l->host.importance), p->columns, p->importance_matrix, p->importance_first};
        return apr_cuda_encoder_by_of(p->to)(l->values, &importance, out, p->n_elems, l->stream);
    }
    if (p->to != APR_F8_E4M3) return apr_cuda_encoder_of(p->to)(l->values, out, p->n_elems, l->stream);
    return launch_encode_fp8_rows(l->values, out, mirrored(l, l->host.row_scales), p->n_elems / p->columns, p->columns, l->stream);
}

/* Copies between the same offsets of host and device. */
static cudaError_t copy_up(const worker *l, const void *host, size_t n_bytes)
{
    return n_bytes == 0 ? cudaSuccess : cudaMemcpyAsync(mirrored(l, (uint8_t *)host), host, n_bytes, cudaMemcpyHostToDevice, l->stream);
}

static cudaError_t copy_down(const worker *l, void *host, size_t n_bytes)
{
    return n_bytes == 0 ? cudaSuccess : cudaMemcpyAsync(host, mirrored(l, (uint8_t *)host), n_bytes, cudaMemcpyDeviceToHost, l->stream);
}

/* Whether importance is given for every value of the portion. */
static bool importance_fits(const apr_cuda_worker_sizes *s, const apr_cuda_portion *p)
{
    if (p->n_importance == 0) return true;
    if (p->n_importance < 0 || p->n_importance > s->n_importance || p->columns < 1 || p->importance_matrix < p->columns ||
        p->importance_first < 0 || p->columns % apr_dtypes[p->to].elems_per_block != 0)
        return false;
    return (p->importance_first + p->n_elems - 1) / p->importance_matrix < p->n_importance / p->columns;
}

static apr_status check_portion(const worker *l, apr_error *err)
{
    const apr_cuda_portion *const p = &l->portion;
    const apr_cuda_worker_sizes *const s = &l->sizes;
    const int64_t n_rows = p->columns > 0 ? (p->n_elems + p->columns - 1) / p->columns : 0;
    const bool fits = p->n_elems > 0 && p->n_elems <= s->n_elems && p->in_bytes <= s->in_bytes &&
                      (size_t)apr_row_bytes(p->to, p->n_elems) <= s->out_bytes && n_rows * p->factors_wide <= s->n_factors &&
                      (p->to != APR_F8_E4M3 || (n_rows > 0 && n_rows <= s->n_rows)) && importance_fits(s, p);
    if (!fits || !decodes(p->from) || !encodes(p->to))
        return apr_fail(err, APR_E_USAGE, "a portion of %lld values from %s to %s does not fit its worker", (long long)p->n_elems,
                        apr_dtypes[p->from].name, apr_dtypes[p->to].name);
    return APR_OK;
}

static apr_status start(apr_cuda_worker *host, const apr_cuda_portion *portion, apr_error *err)
{
    worker *const l = (worker *)host;
    const int64_t n_rows = portion->columns > 0 ? (portion->n_elems + portion->columns - 1) / portion->columns : 0;

    l->portion = *portion;
    APR_TRY(check_portion(l, err));
    cudaError_t error = cudaSetDevice(l->ordinal);
    if (error == cudaSuccess) error = copy_up(l, host->in, portion->in_bytes);
    if (error == cudaSuccess) error = copy_up(l, host->factors, 4 * (size_t)(n_rows * portion->factors_wide));
    if (error == cudaSuccess) error = copy_up(l, host->importance, 4 * (size_t)portion->n_importance);
    if (error == cudaSuccess) error = cudaMemsetAsync(mirrored(l, l->found), 0, sizeof *l->found, l->stream);
    if (error == cudaSuccess) error = decode(l);
    if (error == cudaSuccess)
        error = launch_find_out_of_range(l->values, portion->n_elems, portion->range, portion->saturate, mirrored(l, l->found), l->stream);
    if (error == cudaSuccess) error = encode(l);
    if (error == cudaSuccess) error = copy_down(l, host->out, (size_t)apr_row_bytes(portion->to, portion->n_elems));
    if (error == cudaSuccess && portion->to == APR_F8_E4M3) error = copy_down(l, host->row_scales, 4 * (size_t)n_rows);
    if (error == cudaSuccess) error = copy_down(l, l->found, sizeof *l->found);
    return result(error, "converting", portion, err);
}

static apr_status wait_worker(apr_cuda_worker *host, apr_out_of_range *out_of_range, apr_error *err)
{
    worker *const l = (worker *)host;
    const cudaError_t error = cudaStreamSynchronize(l->stream);
    const codec_out_of_range none = {};
    *out_of_range = out_of_range_of(error == cudaSuccess ? l->found : &none);
    return result(error, "converting", &l->portion, err);
}

/* ---- benchmarks ---- */

enum measured { DECODE, ENCODE, COPY };

static cudaError_t launch_measured(const worker *l, measured what)
{
    if (what == DECODE) return decode(l);
    if (what == ENCODE) return encode(l);
    const size_t half = 2 * (size_t)l->sizes.n_elems / 256 * 256; /* half of the values' bytes */
    return cudaMemcpyAsync((uint8_t *)l->values + half, l->values, half, cudaMemcpyDeviceToDevice, l->stream);
}

static cudaError_t median_seconds(const worker *l, measured what, int n_times, double *seconds)
{
    enum { MOST = 64 };
    float ms[MOST];
    cudaEvent_t begin = nullptr, end = nullptr;
    const int n = std::max(1, std::min(n_times, (int)MOST));
    cudaError_t error = cudaEventCreate(&begin);

    if (error == cudaSuccess) error = cudaEventCreate(&end);
    for (int i = 0; i < n && error == cudaSuccess; i++) {
        cudaEventRecord(begin, l->stream);
        error = launch_measured(l, what);
        cudaEventRecord(end, l->stream);
        if (error == cudaSuccess) error = cudaEventSynchronize(end);
        if (error == cudaSuccess) error = cudaEventElapsedTime(&ms[i], begin, end);
    }
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
    if (error != cudaSuccess) return error;
    std::sort(ms, ms + n);
    *seconds = ms[n / 2] * 1e-3;
    return cudaSuccess;
}

static apr_status measure(apr_cuda_worker *host, int n_times, double *decode_s, double *encode_s, double *copy_bytes_per_s, apr_error *err)
{
    const worker *const l = (const worker *)host;
    double copy_s = 1.0;
    cudaError_t error = median_seconds(l, DECODE, n_times, decode_s);
    if (error == cudaSuccess) error = median_seconds(l, ENCODE, n_times, encode_s);
    if (error == cudaSuccess) error = median_seconds(l, COPY, n_times, &copy_s);
    *copy_bytes_per_s = 4.0 * (double)l->sizes.n_elems / copy_s; /* half of the values are read, half written */
    return result(error, "measuring", &l->portion, err);
}

const apr_cuda_codecs apr_cuda_codec_table = {
    .decodes = decodes,
    .encodes = encodes,
    .encodes_by = encodes_by,
    .check_memory = check_memory,
    .open_worker = open_worker,
    .close_worker = close_worker,
    .start = start,
    .wait = wait_worker,
    .measure = measure,
};
