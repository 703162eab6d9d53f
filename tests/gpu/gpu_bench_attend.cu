/* gpu_bench_attend.cu - how fast attention is: prints figures, checks none.
 *
 * gpu_bench_attend [decode|prompt]: each line is the median of 7 runs of a CUDA graph that goes through as many layers' caches as it takes
 * to push each other out of L2, so that a launch costs what it costs inside a decoded token. Decoding: the cache's bytes, and their share
 * of what the card's memory can carry by its data sheet. Prompts: what is useful of causal attention, and its share of dense FP16.
 * Exit code 0; 77: no device. */
#include "tests/gpu/gpu_check.cuh"

#include <algorithm>

typedef struct bench_case {
    const char *name;
    int64_t n_heads, n_kv_heads, key_dim, value_dim;
    apr_dtype dtype;
} bench_case;

/* FLOP of a multiprocessor and clock, of dense FP16 with float32 sums, by the architecture. */
static double peak_flops(int device)
{
    static const struct {
        int major, minor;
        double flops;
    } peaks[] = {{7, 5, 512},   {8, 0, 2048},  {8, 6, 512},  {8, 9, 512}, {9, 0, 4096},
                 {10, 0, 8192}, {10, 3, 8192}, {12, 0, 512}, {12, 1, 512}};
    int major, minor, n_sms, khz;
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "device");
    must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "device");
    must(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device), "device");
    must(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device), "device");
    for (const auto &peak : peaks)
        if (peak.major == major && peak.minor == minor) return peak.flops * n_sms * khz * 1e3;
    return 0;
}

static double peak_bytes(int device)
{
    int khz, bits;
    must(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, device), "device");
    must(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device), "device");
    return 2e3 * khz * bits / 8; /* two transfers a clock */
}

static __global__ void k_fill(uint8_t *p, size_t n, apr_dtype dtype)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 7) * 40503u, bits = x >> 13;
        /* small numbers of either sign, whatever the type: the upper byte of each half, or of a block's scale, is near that of 1 */
        if (dtype == APR_F16) p[i] = (uint8_t)(i % 2 ? 0x34 | (bits & 0x83) : bits);
        else if (dtype == APR_F32) p[i] = (uint8_t)(i % 4 == 3 ? 0x3e | (bits & 0x80) : bits);
        else if (dtype == APR_Q8_0) p[i] = (uint8_t)(i % 34 == 1 ? 0x20 : bits);
        else p[i] = (uint8_t)(0x28 | (bits & 0x8f));
    }
}

/* One layer's microseconds at a depth: n_tokens after `position` others. */
static double layer_us(const bench_case &c, int64_t n_tokens, int64_t position)
{
    const int64_t n_cells = (position + n_tokens + 255) / 256 * 256, key_bytes = row_bytes_of(c.dtype, c.key_dim),
                  value_bytes = row_bytes_of(c.dtype, c.value_dim);
    const size_t keys = (size_t)(n_cells * c.n_kv_heads * key_bytes), values = (size_t)(n_cells * c.n_kv_heads * value_bytes);
    const int n_layers = (int)std::min<size_t>(32, 1 + (size_t)256000000 / (keys + values));
    const device_copy<uint8_t> cache((keys + values) * n_layers + 256, false);
    const device_copy<float> q(normals(n_tokens * c.n_heads * c.key_dim)), out((size_t)(n_tokens * c.n_heads * c.value_dim)),
        work(apr_cuda_attend_bytes(c.n_heads, c.value_dim) / 4);
    k_fill<<<2048, 256>>>(cache.device, cache.n, c.dtype);
    apr_attend_args a;
    memset(&a, 0, sizeof a);
    a.n_tokens = n_tokens, a.position = position, a.n_heads = c.n_heads, a.n_kv_heads = c.n_kv_heads, a.key_dim = c.key_dim,
    a.value_dim = c.value_dim, a.scale = 1.0f / sqrtf((float)c.key_dim), a.q = q.device, a.out = out.device;
    a.work = apr_workspace{work.device, work.n, 1};

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    must(cudaDeviceSynchronize(), "fill");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int layer = 0; layer < n_layers; layer++) {
        uint8_t *const at = cache.device + (keys + values) * layer;
        a.keys = apr_cache{c.dtype, at, n_cells, key_bytes};
        a.values = apr_cache{c.dtype, at + keys, n_cells, value_bytes};
        must(apr_cuda_attend(&a, stream), "attend");
    }
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiate(&ready, graph, 0), "graph");
    double us[7];
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    for (int run = -2; run < 7; run++) {
        float ms;
        cudaEventRecord(begin, stream);
        must(cudaGraphLaunch(ready, stream), "graph");
        cudaEventRecord(end, stream);
        must(cudaEventSynchronize(end), "graph");
        cudaEventElapsedTime(&ms, begin, end);
        if (run >= 0) us[run] = ms * 1e3 / n_layers;
    }
    cudaEventDestroy(begin), cudaEventDestroy(end), cudaGraphExecDestroy(ready), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
    std::sort(us, us + 7);
    return us[3];
}

static void bench(const bench_case &c, int64_t n_tokens, int64_t position)
{
    const double us = layer_us(c, n_tokens, position), seen = (double)n_tokens * position + 0.5 * n_tokens * (n_tokens + 1);
    const double bytes =
        (double)(position + n_tokens) * c.n_kv_heads * (row_bytes_of(c.dtype, c.key_dim) + row_bytes_of(c.dtype, c.value_dim));
    const double flops = seen * c.n_heads * (c.key_dim + c.value_dim) * 2;
    printf("%-28s %-8s %5lld at %6lld %9.2f us", c.name, apr_dtypes[c.dtype].name, (long long)n_tokens, (long long)position, us);
    if (n_tokens > APR_CUDA_FEW_TOKENS) printf(" %7.1f TFLOP/s %5.1f %%\n", flops / us / 1e6, 1e8 * flops / us / peak_flops(0));
    else printf(" %7.0f GB/s    %5.1f %%\n", bytes / us / 1e3, 1e8 * bytes / us / peak_bytes(0));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    static const bench_case seven = {"28 heads on 4 of 128", 28, 4, 128, 128, APR_F16};
    static const bench_case others[] = {
        {"32 heads on 8 of 128", 32, 8, 128, 128, APR_F16},  {"40 heads on 8 of 128", 40, 8, 128, 128, APR_F16},
        {"32 heads on 4 of 128", 32, 4, 128, 128, APR_F16},  {"14 heads on 2 of 64", 14, 2, 64, 64, APR_F16},
        {"8 heads on 4 of 256", 8, 4, 256, 256, APR_F16},    {"16 heads on 16 of 192 and 128", 16, 16, 192, 128, APR_F16},
        {"28 heads on 4 of 128", 28, 4, 128, 128, APR_Q8_0}, {"28 heads on 4 of 128", 28, 4, 128, 128, APR_F8_E4M3},
        {"28 heads on 4 of 128", 28, 4, 128, 128, APR_F32},
    };
    if (argc < 2 || strcmp(argv[1], "prompt") != 0) {
        for (int64_t position : {0, 127, 255, 511, 1023, 2047, 4095, 16383, 32767}) bench(seven, 1, position);
        for (int64_t n_tokens : {2, 4, 8})
            for (int64_t position : {500, 16000}) bench(seven, n_tokens, position);
        for (const bench_case &c : others)
            for (int64_t position : {127, 4095, 16383}) bench(c, 1, position);
    }
    if (argc > 1 && strcmp(argv[1], "decode") == 0) return 0;
    for (int64_t n_tokens : {32, 128, 512, 2048}) bench(seven, n_tokens, 0);
    for (int64_t position : {2048, 14336}) bench(seven, 2048, position);
    for (const bench_case &c : others) bench(c, 2048, 0);
    return 0;
}
