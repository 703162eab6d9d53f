/* gpu_encode_by.cu - encoders by importance: the bytes of kernels/ref for every type that has one, whatever the values and importances.
 *
 *     gpu_encode_by [SEEDS|quick [TYPE]]     default 2 of each pair of distributions; also prints the time of 64 Mi values of each type,
 *                                            unless only one is asked for. quick: few rows, one seed, no times */
#include "kernels/cuda/codecs/codecs.cuh"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <vector>

enum {
    ROWS = 96,
    QUICK_ROWS = 3,
    COLUMNS = 2048,
    MATRICES = 4,
    MIDDLE = 3 * 256 /* of a row */
};

static int n_failed;
static long long n_compared, n_plain;

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return;
    printf("gpu_encode_by: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static uint64_t noise(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + (i + 1) * 0xd1342543de82ef95u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static float uniform(uint64_t s, uint64_t i) { return (float)(noise(s, i) >> 40) * 0x1p-24f; }
static float normal(uint64_t s, uint64_t i)
{
    float sum = -6.0f;
    for (uint64_t k = 0; k < 12; k++) sum += uniform(s + k, i);
    return sum;
}

/* ---- values ---- */

static float plain(uint64_t s, uint64_t i) { return 0.02f * normal(s, i); }
static float heavy(uint64_t s, uint64_t i) { return powf(normal(s, i), 5.0f); }
static float one_sign(uint64_t s, uint64_t i) { return 3.0f + normal(s, i); }
static float few(uint64_t s, uint64_t i) { return (float)((int)(noise(s, i) % 7) - 3) * 0.25f; }
static float zeros(uint64_t s, uint64_t i) { return noise(s, i) % 4 != 0 ? (noise(s + 1, i) & 1 ? -0.0f : 0.0f) : plain(s, i); }
static float constant(uint64_t s, uint64_t i) { return plain(s, i / 32); }
static float any_scale(uint64_t s, uint64_t i) { return ldexpf(normal(s, i), (int)(noise(s, i / 256) % 250) - 125); }
static float any_bits(uint64_t s, uint64_t i) { return apr_f32_from_bits((uint32_t)noise(s, i)); }

/* ---- importances: of columns, not negative, or what no file should say ---- */

static float ordinary(uint64_t s, uint64_t i) { return normal(s, i) * normal(s, i); }
static float few_heavy(uint64_t s, uint64_t i) { return noise(s, i) % 64 == 0 ? 1e6f : uniform(s, i); }
static float one_only(uint64_t s, uint64_t i) { return noise(s, i) % 32 == 0 ? 1.0f : 0.0f; }
static float equal(uint64_t s, uint64_t i) { return (float)(1 + noise(s, i / 256) % 3); }
static float equal_of_32(uint64_t s, uint64_t i) { return (float)(noise(s, i / 32) % 5); }
static float none(uint64_t, uint64_t) { return 0.0f; }
static float huge(uint64_t s, uint64_t i) { return ldexpf(uniform(s, i), (int)(noise(s + 1, i) % 250) - 125); }
static float hostile(uint64_t s, uint64_t i)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, -1.0f, -0.0f, 1e38f, 1e-40f, 0.0f};
    return noise(s, i) % 5 == 0 ? odd[noise(s + 1, i) % 8] : uniform(s, i);
}

typedef struct distribution {
    const char *name;
    float (*of)(uint64_t seed, uint64_t i);
} distribution;

static const distribution values_of[] = {{"plain", plain}, {"heavy tails", heavy}, {"one sign", one_sign},   {"few values", few},
                                         {"zeros", zeros}, {"constant", constant}, {"any scale", any_scale}, {"any bits", any_bits}};
static const distribution importances_of[] = {{"ordinary", ordinary}, {"few heavy", few_heavy},     {"one only", one_only},
                                              {"equal", equal},       {"equal of 32", equal_of_32}, {"none", none},
                                              {"of any size", huge},  {"hostile", hostile}};

static std::vector<float> filled(const distribution &d, size_t n, uint64_t seed)
{
    std::vector<float> x(n);
    for (size_t i = 0; i < n; i++) x[i] = d.of(seed, i);
    return x;
}

/* ---- comparisons ---- */

struct bench {
    int64_t rows;
    float *values, *columns;
    uint8_t *bytes;
};

/* encode(first value, values) of a row of COLUMNS each, on all cores: blocks end within rows. */
template <typename F> static void on_all_cores(int64_t rows, const F &encode)
{
    const int n = (int)std::thread::hardware_concurrency() > 0 ? (int)std::thread::hardware_concurrency() : 1;
    std::vector<std::thread> threads;
    for (int t = 0; t < n; t++)
        threads.emplace_back([&encode, rows, t, n] {
            for (int64_t row = t; row < rows; row += n) encode(row * COLUMNS, (int64_t)COLUMNS);
        });
    for (std::thread &t : threads) t.join();
}

/* What the reference makes of it: each value's importance is its column's. */
static std::vector<uint8_t> reference(apr_dtype to, const std::vector<float> &x, const std::vector<float> &columns, int64_t matrix,
                                      int64_t first)
{
    std::vector<float> each(x.size());
    std::vector<uint8_t> bytes((size_t)apr_row_bytes(to, (int64_t)x.size()));
    for (size_t i = 0; i < x.size(); i++) {
        const int64_t e = first + (int64_t)i;
        each[i] = columns[(size_t)(e / matrix * COLUMNS + e % COLUMNS)];
    }
    on_all_cores((int64_t)x.size() / COLUMNS, [&](int64_t at, int64_t n) {
        apr_ref_codecs[to].encode_by(x.data() + at, each.data() + at, bytes.data() + apr_row_bytes(to, at), n);
    });
    return bytes;
}

static void check(const bench &b, apr_dtype to, const distribution &of, const distribution &by, uint64_t seed)
{
    const int64_t n = b.rows * COLUMNS, matrix = b.rows / (MATRICES - 1) * COLUMNS, first = seed % 2 == 0 ? 0 : matrix - COLUMNS + MIDDLE;
    const std::vector<float> x = filled(of, (size_t)n, seed), columns = filled(by, MATRICES * COLUMNS, seed + 77);
    const std::vector<uint8_t> want = reference(to, x, columns, matrix, first);
    const codec_importance importance = {b.columns, COLUMNS, matrix, first};
    std::vector<uint8_t> got(want.size()), as_plain(want.size());

    must(cudaMemcpy(b.values, x.data(), x.size() * 4, cudaMemcpyHostToDevice), "values");
    must(cudaMemcpy(b.columns, columns.data(), columns.size() * 4, cudaMemcpyHostToDevice), "importances");
    must(cudaMemset(b.bytes, 0xa5, want.size()), "clearing");
    must(apr_cuda_encoder_by_of(to)(b.values, &importance, b.bytes, n, 0), "encoding");
    must(cudaMemcpy(got.data(), b.bytes, got.size(), cudaMemcpyDeviceToHost), "bytes");
    on_all_cores(b.rows,
                 [&](int64_t at, int64_t n) { apr_ref_codecs[to].encode(x.data() + at, as_plain.data() + apr_row_bytes(to, at), n); });
    n_plain += as_plain == want;
    n_compared += n;
    for (size_t i = 0; i < want.size(); i++)
        if (want[i] != got[i]) {
            printf("DIFFERENT: %s of %s by %s, block %zu byte %zu\n", apr_dtypes[to].name, of.name, by.name,
                   i / (size_t)apr_dtypes[to].bytes_per_block, i % (size_t)apr_dtypes[to].bytes_per_block);
            n_failed++;
            return;
        }
}

/* Milliseconds of 64 Mi values, by importance and without. */
static void measure(apr_dtype to)
{
    const int64_t n = (int64_t)1 << 26;
    float *values, *columns;
    uint8_t *bytes;
    cudaEvent_t at[3];

    must(cudaMalloc(&values, (size_t)n * 4), "memory");
    must(cudaMalloc(&columns, COLUMNS * 4), "memory");
    must(cudaMalloc(&bytes, (size_t)apr_row_bytes(to, n)), "memory");
    const std::vector<float> x = filled(values_of[0], (size_t)1 << 20, 5), w = filled(importances_of[0], COLUMNS, 6);
    for (int64_t i = 0; i < n; i += 1 << 20) must(cudaMemcpy(values + i, x.data(), x.size() * 4, cudaMemcpyHostToDevice), "values");
    must(cudaMemcpy(columns, w.data(), COLUMNS * 4, cudaMemcpyHostToDevice), "importances");
    const codec_importance importance = {columns, COLUMNS, n, 0};
    for (cudaEvent_t &e : at) must(cudaEventCreate(&e), "an event");
    for (int pass = 0; pass < 2; pass++) { /* the first one warms up */
        must(cudaEventRecord(at[0]), "an event");
        must(apr_cuda_encoder_by_of(to)(values, &importance, bytes, n, 0), "encoding");
        must(cudaEventRecord(at[1]), "an event");
        must(apr_cuda_encoder_of(to)(values, bytes, n, 0), "encoding");
        must(cudaEventRecord(at[2]), "an event");
        must(cudaEventSynchronize(at[2]), "the end");
    }
    float by = 0, without = 0;
    must(cudaEventElapsedTime(&by, at[0], at[1]), "a time");
    must(cudaEventElapsedTime(&without, at[1], at[2]), "a time");
    printf("  %-6s by importance %7.2f ms, without %7.2f ms, ratio %.2f; %.0f M weights/s\n", apr_dtypes[to].name, by, without,
           by / without, (double)n / by * 1e-3);
    for (cudaEvent_t &e : at) cudaEventDestroy(e);
    cudaFree(values);
    cudaFree(columns);
    cudaFree(bytes);
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    const int n_seeds = quick ? 1 : argc > 1 ? atoi(argv[1]) : 2; /* NOLINT */
    const char *const only = argc > 2 ? argv[2] : NULL;
    int n_devices = 0;
    uint64_t n_pairs = 0;
    bench b = {quick ? QUICK_ROWS : ROWS, NULL, NULL, NULL};

    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no device\n");
        return 77;
    }
    must(cudaMalloc(&b.values, (size_t)b.rows * COLUMNS * 4), "memory");
    must(cudaMalloc(&b.columns, MATRICES * COLUMNS * 4), "memory");
    must(cudaMalloc(&b.bytes, (size_t)b.rows * COLUMNS * 2), "memory");
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype to = (apr_dtype)d;
        const bool on_host = apr_ref_codecs[to].encode_by != NULL, on_device = apr_cuda_encoder_by_of(to) != nullptr;
        if (on_device != (apr_cuda_encoder_of(to) != nullptr && on_host)) { /* a device encodes a type both ways, or not at all */
            printf("DIFFERENT: %s is encoded by importance on one side only\n", apr_dtypes[to].name);
            n_failed++;
        } else if (on_host && !on_device) printf("%s is encoded on the host only\n", apr_dtypes[to].name);
        if (!on_device || (only != NULL && strcmp(only, apr_dtypes[to].name) != 0)) continue;
        for (const distribution &of : values_of)
            for (const distribution &by : importances_of)
                for (int s = 0; s < n_seeds; s++) check(b, to, of, by, 100 * (uint64_t)d + n_pairs++);
    }
    printf("gpu_encode_by: %lld thousand values compared, %lld pieces as without importance, %d differences\n", n_compared / 1000, n_plain,
           n_failed);
    for (int d = 0; d < APR_DTYPE_COUNT && only == NULL && !quick; d++)
        if (apr_cuda_encoder_by_of((apr_dtype)d) != nullptr) measure((apr_dtype)d);
    if (n_compared == 0 || n_plain == 0) n_failed++; /* nothing was checked, or nothing where all count the same */
    return n_failed > 0;
}
