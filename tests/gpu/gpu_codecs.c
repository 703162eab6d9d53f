/* gpu_codecs.c - the codecs on a CUDA device against kernels/ref, byte for byte, and how fast their kernels are.
 *
 * usage: gpu_codecs [MILLIONS of values for each type and distribution, default 4 | quick: 16384 values each, and no times].
 * Exit 0: all equal, 1: not, 77: no device. */
#include "kernels/cuda_loader.h"
#include "kernels/rows.h"

#include "formats/number/half.h"
#include "tests/support/vectors.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20, QUICK_PIECE = 1 << 14, COLUMNS = 1024, MEASURED = 1 << 26 };

typedef struct bench {
    const apr_cuda_codecs *codecs;
    apr_cuda_device *device;
    int64_t piece;           /* values compared at once */
    apr_cuda_worker *worker; /* of as many values */
    float *values;           /* [piece] */
    uint8_t *bytes;          /* [piece * 8] what the reference makes */
    int n_failed;
    int64_t n_compared, n_out_of_range; /* values */
} bench;

static apr_error err;

static void must(apr_status status)
{
    if (status == APR_OK) return;
    fprintf(stderr, "gpu_codecs: %s\n", err.text);
    exit((int)status);
}

static void *must_have(size_t n_bytes)
{
    void *const p = malloc(n_bytes);
    if (p == NULL) must(apr_no_memory(&err, "a test"));
    return p;
}

/* ---- values ---- */

/* A number of 64 bits for each place: the same whichever thread asks. */
static uint64_t noise(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + (i + 1) * 0xd1342543de82ef95u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static float uniform(uint64_t r) { return (float)(r >> 40) * 0x1p-24f; }

static float normal(uint64_t seed, uint64_t i)
{
    const uint64_t r = noise(seed, i);
    float sum = -4.0f;
    for (int k = 0; k < 8; k++) sum += (float)(r >> 8 * k & 255) / 127.5f * 0.5f;
    return sum + uniform(r * 0x9e3779b97f4a7c15u) * 0.01f;
}

static float plain(uint64_t s, uint64_t i) { return 0.02f * normal(s, i); }
static float heavy_tails(uint64_t s, uint64_t i)
{
    const float x = normal(s, i);
    return x * x * x * x * x;
}
static float one_sign(uint64_t s, uint64_t i) { return 3.0f + normal(s, i); }
static float one_outlier(uint64_t s, uint64_t i) { return i / 256 % 2 == 0 && i % 256 == s % 256 ? 1000.0f : plain(s, i); }
static float few_values(uint64_t s, uint64_t i) { return (float)((int)(noise(s, i) % 7) - 3) * 0.25f; }
static float many_zeros(uint64_t s, uint64_t i) { return noise(s + 1, i) % 4 != 0 ? (noise(s + 2, i) & 1 ? -0.0f : 0.0f) : plain(s, i); }
static float constant_blocks(uint64_t s, uint64_t i) { return plain(s, i / 32); }
static float denormals(uint64_t s, uint64_t i) { return apr_f32_from_bits((uint32_t)noise(s, i) & 0x807fffff); }
static float any_scale(uint64_t s, uint64_t i) { return ldexpf(normal(s, i), (int)(noise(s + 1, i / 256) % 250) - 125); }
static float any_bits(uint64_t s, uint64_t i) { return apr_f32_from_bits((uint32_t)noise(s, i)); }
static float near_half_limits(uint64_t s, uint64_t i) { return 65504.0f * 63.0f * 15.0f * (uniform(noise(s, i)) * 2.2f - 1.1f); }
static float hostile(uint64_t s, uint64_t i)
{
    static const uint32_t bits[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345,
                                    0x7f800001, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0x38800000, 0x477fe000, 0x47800000, 0x33000000};
    const uint64_t block = noise(s + 1, i / 32), r = noise(s, i);
    if (r % 16 >= block % 16) return plain(s, i);
    return apr_f32_from_bits(bits[block % 3 == 0 ? block / 16 % 16 : r / 16 % 16]);
}

static const struct distribution {
    const char *name;
    float (*value)(uint64_t seed, uint64_t i);
} distributions[] = {{"plain", plain},
                     {"heavy tails", heavy_tails},
                     {"one sign", one_sign},
                     {"one outlier", one_outlier},
                     {"few values", few_values},
                     {"many zeros", many_zeros},
                     {"constant blocks", constant_blocks},
                     {"denormals", denormals},
                     {"any scale", any_scale},
                     {"any bits", any_bits},
                     {"near the limits of halves", near_half_limits},
                     {"hostile", hostile}};

static void fill(const bench *b, const struct distribution *of, uint64_t seed)
{
#pragma omp parallel for
    for (int64_t i = 0; i < b->piece; i++) b->values[i] = of->value(seed, (uint64_t)i);
}

/* ---- comparisons ---- */

static apr_out_of_range run_portion(const bench *b, const apr_cuda_portion *portion, const void *in)
{
    apr_out_of_range out_of_range;
    memcpy(b->worker->in, in, portion->in_bytes);
    memset(b->worker->out, 0xa5, (size_t)apr_row_bytes(portion->to, portion->n_elems));
    must(b->codecs->start(b->worker, portion, &err));
    must(b->codecs->wait(b->worker, &out_of_range, &err));
    return out_of_range;
}

static void say_different(bench *b, const char *what, apr_dtype dtype, const char *of, size_t at)
{
    printf("DIFFERENT: %s %s of %s, first at %zu\n", what, apr_dtypes[dtype].name, of, at);
    b->n_failed++;
}

static bool same_out_of_range(const apr_out_of_range *a, const apr_out_of_range *b)
{
    return a->n_nonfinite == b->n_nonfinite && a->n_out_of_range == b->n_out_of_range && a->worst == b->worst;
}

static void reference_encode(const bench *b, apr_dtype to, float *row_scales)
{
    const int64_t row_bytes = apr_row_bytes(to, COLUMNS);
#pragma omp parallel for
    for (int64_t r = 0; r < b->piece / COLUMNS; r++) {
        if (to == APR_F8_E4M3) apr_encode_fp8_row(b->values + r * COLUMNS, b->bytes + r * row_bytes, &row_scales[r], COLUMNS);
        else apr_ref_codecs[to].encode(b->values + r * COLUMNS, b->bytes + r * row_bytes, COLUMNS);
    }
}

/* saturate: values out of range become the type's bounds; they are counted all the same. */
static void check_encode(bench *b, apr_dtype to, bool saturate, const char *of)
{
    const apr_cuda_portion portion = {.from = APR_F32,
                                      .to = to,
                                      .n_elems = b->piece,
                                      .columns = COLUMNS,
                                      .in_bytes = (size_t)b->piece * sizeof(float),
                                      .range = apr_encode_range(to),
                                      .saturate = saturate};
    const size_t n_bytes = (size_t)apr_row_bytes(to, b->piece);
    float row_scales[PIECE / COLUMNS];

    const apr_out_of_range counted = run_portion(b, &portion, b->values), expected = apr_find_out_of_range(b->values, b->piece, to);
    if (!same_out_of_range(&counted, &expected)) say_different(b, "what cannot be held by", to, of, 0);
    b->n_out_of_range += expected.n_out_of_range;
    if (saturate) apr_saturate(b->values, b->values, b->piece, to);
    reference_encode(b, to, row_scales);
    b->n_compared += b->piece;
    for (size_t i = 0; i < n_bytes; i++)
        if (b->bytes[i] != b->worker->out[i]) {
            const int64_t block_bytes = apr_dtypes[to].bytes_per_block, block = (int64_t)i / block_bytes;
            say_different(b, "encoding", to, of, i);
            printf("  block %lld byte %lld\n", (long long)block, (long long)((int64_t)i % block_bytes));
            return;
        }
    if (to == APR_F8_E4M3 && memcmp(row_scales, b->worker->row_scales, (size_t)(b->piece / COLUMNS) * sizeof *row_scales) != 0)
        say_different(b, "scales of", to, of, 0);
}

/* Bits, where a number; that it is none, where not: what is left of a NaN after arithmetic is not defined. */
static bool same_value(const float *a, const float *b) { return memcmp(a, b, sizeof *a) == 0 || (*a != *a && *b != *b); }

static void check_decode(bench *b, apr_dtype from, const uint8_t *bytes, int64_t n, const char *of)
{
    const apr_cuda_portion portion = {
        .from = from, .to = APR_F32, .n_elems = n, .in_bytes = (size_t)apr_row_bytes(from, n), .range = apr_encode_range(APR_F32)};
    apr_ref_codecs[from].decode(bytes, b->values, n);
    run_portion(b, &portion, bytes);
    b->n_compared += n;
    for (int64_t i = 0; i < n; i++)
        if (!same_value(&b->values[i], (const float *)b->worker->out + i)) {
            say_different(b, "decoding", from, of, (size_t)i);
            return;
        }
}

static void check_factors(bench *b)
{
    const apr_cuda_portion portion = {.from = APR_F8_E4M3,
                                      .to = APR_F32,
                                      .n_elems = b->piece,
                                      .columns = COLUMNS,
                                      .in_bytes = (size_t)b->piece,
                                      .factors_wide = 4,
                                      .factors_group = 300};
    for (int64_t i = 0; i < b->piece; i++) b->bytes[i] = (uint8_t)noise(5, (uint64_t)i);
    for (int64_t i = 0; i < b->piece / COLUMNS * 4; i++) b->worker->factors[i] = normal(6, (uint64_t)i);
    apr_ref_codecs[APR_F8_E4M3].decode(b->bytes, b->values, b->piece);
    for (int64_t i = 0; i < b->piece; i++) b->values[i] *= b->worker->factors[i / COLUMNS * 4 + i % COLUMNS / 300];
    run_portion(b, &portion, b->bytes);
    for (int64_t i = 0; i < b->piece; i++)
        if (!same_value(&b->values[i], (const float *)b->worker->out + i)) {
            say_different(b, "factors of", APR_F8_E4M3, "random bytes", (size_t)i);
            return;
        }
}

static void check_random_bytes(bench *b, apr_dtype dtype)
{
    const int64_t n_bytes = apr_row_bytes(dtype, b->piece);
    for (int64_t i = 0; i < n_bytes; i++) b->bytes[i] = (uint8_t)noise(dtype, (uint64_t)i);
    check_decode(b, dtype, b->bytes, b->piece, "random bytes");
}

static void check_golden(bench *b)
{
    vectors golden;
    size_t n_bytes;
    if (!vectors_open(&golden, "tests/data/ggml-types.safetensors")) {
        printf("DIFFERENT: tests/data/ggml-types.safetensors cannot be read\n");
        b->n_failed++;
        return;
    }
    const float *const x = vectors_find(&golden, "x", &n_bytes);
    const int64_t n = (int64_t)(n_bytes / sizeof *x);
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const void *const bytes = vectors_part(&golden, apr_dtypes[d].name, "bytes", NULL);
        if (bytes != NULL && apr_can_decode(d)) check_decode(b, d, bytes, n, "ggml's vectors");
        if (!b->codecs->encodes(d) || d == APR_F8_E4M3) continue;
        const apr_cuda_portion portion = {.from = APR_F32, .to = d, .n_elems = n, .in_bytes = n_bytes, .range = apr_encode_range(d)};
        apr_ref_codecs[d].encode(x, b->bytes, n);
        run_portion(b, &portion, x);
        if (memcmp(b->bytes, b->worker->out, (size_t)apr_row_bytes(d, n)) != 0) say_different(b, "encoding", d, "ggml's vectors", 0);
    }
    vectors_close(&golden);
}

/* Each type twice: as it is, and cut off at its bounds. */
static void check_distribution(bench *b, const struct distribution *of, uint64_t seed)
{
    fill(b, of, seed);
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (!b->codecs->encodes(d)) continue;
        const int64_t before = b->n_out_of_range;
        check_encode(b, d, false, of->name);
        if (b->n_out_of_range == before) continue;
        check_encode(b, d, true, of->name);
        fill(b, of, seed);
    }
}

/* More than any card has is refused with both numbers, before anything is allocated. */
static void check_capacity(bench *b)
{
    const apr_cuda_worker_sizes huge = {.in_bytes = (size_t)1 << 42, .out_bytes = 1, .n_elems = 1}, small = {.n_elems = 1};
    apr_error refused = {0};
    if (b->codecs->check_memory(b->device, &huge, 1, &refused) != APR_E_MEMORY || strstr(refused.text, "MiB are free") == NULL)
        say_different(b, "the refusal of a worker of 4 TiB as", APR_F32, refused.text, 0);
    printf("%s\n", refused.text);
    must(b->codecs->check_memory(b->device, &small, 1, &err));
}

/* ---- figures ---- */

/* Bytes read and written by the kernels: source, float32 once out and once in, result. */
static void measure(const bench *b, apr_dtype from, apr_dtype to)
{
    const apr_cuda_worker_sizes sizes = {.in_bytes = (size_t)apr_row_bytes(from, MEASURED),
                                         .out_bytes = (size_t)apr_row_bytes(to, MEASURED),
                                         .n_elems = MEASURED,
                                         .n_rows = MEASURED / COLUMNS};
    const apr_cuda_portion portion = {
        .from = from, .to = to, .n_elems = MEASURED, .columns = COLUMNS, .in_bytes = sizes.in_bytes, .range = apr_encode_range(to)};
    double decode_s = 0, encode_s = 0, copy = 1;
    apr_out_of_range out_of_range;
    apr_cuda_worker *worker;

    must(b->codecs->open_worker(b->device, &sizes, &worker, &err));
#pragma omp parallel for
    for (int64_t i = 0; i < MEASURED; i++) {
        const uint16_t half = apr_f32_to_f16(plain(1, (uint64_t)i));
        memcpy(worker->in + 2 * i, &half, sizeof half);
    }
    must(b->codecs->start(worker, &portion, &err));
    must(b->codecs->wait(worker, &out_of_range, &err));
    must(b->codecs->measure(worker, 9, &decode_s, &encode_s, &copy, &err));
    b->codecs->close_worker(worker);
    const double n = (double)MEASURED, read = (double)sizes.in_bytes, written = (double)sizes.out_bytes;
    printf("  %-6s decode %6.0f GB/s  encode %6.0f GB/s (%3.0f %% of a copy's %4.0f)  %8.0f M weights/s for both\n", apr_dtypes[to].name,
           (read + 4 * n) / decode_s * 1e-9, (written + 4 * n) / encode_s * 1e-9, 100 * (written + 4 * n) / encode_s / copy, copy * 1e-9,
           n / (decode_s + encode_s) * 1e-6);
}

static void open_bench(bench *b, const apr_cuda_api *api)
{
    const apr_cuda_options options = {0};
    const size_t n_bytes = 8 * (size_t)b->piece;
    const apr_cuda_worker_sizes sizes = {
        .in_bytes = n_bytes, .out_bytes = n_bytes, .n_elems = b->piece, .n_factors = 4 * b->piece / COLUMNS, .n_rows = b->piece / COLUMNS};
    must(api->open(&b->device, 0, &options, &err));
    b->codecs = api->codecs;
    must(b->codecs->open_worker(b->device, &sizes, &b->worker, &err));
    b->values = must_have((size_t)b->piece * sizeof *b->values);
    b->bytes = must_have(n_bytes);
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    const int n_portions = quick ? 1 : argc > 1 ? atoi(argv[1]) : 4; /* NOLINT */
    const apr_cuda_api *api;
    bench b = {.piece = quick ? QUICK_PIECE : PIECE};
    int n_devices = 0;

    if (apr_cuda_load(&api, &err) != APR_OK || api->count(&n_devices, &err) != APR_OK) {
        printf("gpu_codecs: skipped: no device (%s)\n", err.text);
        return 77;
    }
    open_bench(&b, api);
    check_golden(&b);
    check_factors(&b);
    check_capacity(&b);
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (apr_can_decode(d) != b.codecs->decodes(d) || apr_can_encode(d) != b.codecs->encodes(d))
            say_different(&b, "what can be done with", d, "the device", 0);
        if (b.codecs->decodes(d) && d != APR_APR_Q8) check_random_bytes(&b, d);
    }
    for (size_t k = 0; k < sizeof distributions / sizeof *distributions; k++)
        for (int p = 0; p < n_portions; p++) check_distribution(&b, &distributions[k], 1000 * k + (uint64_t)p);
    printf("gpu_codecs: %lld thousand values compared, %lld values beyond a type's range, %d differences\n",
           (long long)(b.n_compared / 1000), (long long)b.n_out_of_range, b.n_failed);
    if (b.n_compared == 0 || b.n_out_of_range == 0) b.n_failed++; /* nothing was checked */
    for (int d = 0; d < APR_DTYPE_COUNT && !quick; d++)
        if (b.codecs->encodes(d)) measure(&b, APR_F16, d);
    b.codecs->close_worker(b.worker);
    api->close(b.device);
    free(b.values);
    free(b.bytes);
    return b.n_failed > 0;
}
