/* kernels/cuda/gemv/gemv_canonical.cu through the table of functions: packed matrices in the canonical layout against kernels/ref on the
 * matrices as they were. Rows as numbers are the same bits; products differ by float32 sums in another order. */
#include "formats/number/half.h"
#include "kernels/cuda_loader.h"
#include "kernels/ref/ref_ops.h"
#include "kernels/repack.h"
#include "runtime/program/op_spec.h"
#include "tests/support/packed_matrix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { BLAS_BYTES = 32 << 20, MOST_BLOCKS = 64, MOST_TOKENS = 136 };

static const apr_cuda_api *cuda;
static apr_cuda_device *device;
static void *blocks[MOST_BLOCKS];
static int n_blocks;

static void must(apr_status status, const apr_error *err)
{
    if (status != APR_OK) fail_msg("%s", err->text);
}

/* Of exactly that size: what is read beyond it shows under compute-sanitizer. */
static void *on_device(const void *from, size_t n_bytes)
{
    apr_error err = {0};
    void *p;
    assert_true(n_blocks < MOST_BLOCKS);
    must(cuda->alloc(device, n_bytes, "a test", &p, &err), &err);
    if (from != NULL) must(cuda->upload(device, p, from, n_bytes, &err), &err);
    blocks[n_blocks++] = p;
    return p;
}

static void release_all(void)
{
    while (n_blocks > 0) cuda->release(device, blocks[--n_blocks]);
}

static uint64_t seed = 88172645463325252u;
static float *noises(size_t n)
{
    float *const x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        x[i] = (float)(int32_t)(seed >> 32) * 0x1p-31f;
    }
    return x;
}

/* A packed matrix and its canonical layout on the device. */
typedef struct repacked {
    packed_matrix m;
    apr_repack repack;
    apr_tensor device; /* all of it, two-dimensional */
} repacked;

static void put_on_device(repacked *r, const packed_kind *kind)
{
    packed_matrix_make(&r->m, kind);
    assert_true(apr_repack_init(&r->repack, &r->m.tensor, 1));
    const size_t n_bytes = (size_t)r->repack.offsets[APR_CANONICAL_SECTIONS];
    uint8_t *const memory = malloc(n_bytes);
    assert_non_null(memory);
    memset(memory, 0, n_bytes);
    for (int i = 0; i < APR_CANONICAL_SECTIONS; i++)
        if (r->repack.piece_rows[i] > 0)
            apr_repack_rows(&r->repack, (apr_canonical_section)i, 0, r->repack.piece_rows[i], memory + r->repack.offsets[i]);
    apr_repack_bind(&r->repack, on_device(memory, n_bytes));
    free(memory);
    assert_true(cuda->takes_packing(&r->repack.packing, kind->dtype));
    r->device = r->m.tensor;
    r->device.packing = &r->repack.packing;
    r->device.rank = 2;
    r->device.dims[0] = r->m.packing.rows;
    r->device.dims[1] = r->m.packing.columns;
    r->device.data = NULL;
}

/* The matrix as it was, as floats; to be freed. */
static float *numbers_of(const repacked *r)
{
    float *const w = malloc((size_t)(r->m.packing.rows * r->m.packing.columns) * sizeof *w);
    assert_non_null(w);
    apr_decode_rows(&r->m.tensor, 0, r->m.packing.rows, w);
    return w;
}

static void run_op(apr_op_kind kind, const apr_op_args *args, const float *from, float *to, size_t n_floats)
{
    apr_error err = {0};
    must(cuda->run(device, kind, args, &err), &err);
    must(cuda->download(device, to, from, n_floats * sizeof *to, &err), &err);
}

/* --- rows as numbers --- */

static void check_rows(const repacked *r, const char *what)
{
    const size_t rows = (size_t)r->m.packing.rows, columns = (size_t)r->m.packing.columns;
    float *const w = numbers_of(r), *const out = malloc(rows * columns * sizeof *out);
    uint16_t *const halves = malloc(rows * columns * sizeof *halves);
    int32_t *const ids = malloc(rows * sizeof *ids);
    float *const to = on_device(NULL, rows * columns * sizeof *out);
    apr_error err = {0};

    for (size_t i = 0; i < rows; i++) ids[i] = (int32_t)(rows - 1 - i);
    apr_op_args args = {.embed = {.n_tokens = (int64_t)rows, .width = (int64_t)columns, .table = &r->device, .out = to}};
    args.embed.ids = on_device(ids, rows * sizeof *ids);
    run_op(APR_OP_EMBED, &args, to, out, rows * columns);
    for (size_t i = 0; i < rows; i++)
        if (memcmp(out + i * columns, w + (rows - 1 - i) * columns, columns * sizeof *w) != 0)
            fail_msg("%s: row %zu is another one", what, rows - 1 - i);
    must(cuda->decode_f16(device, &r->device, 1, (int64_t)rows - 1, to, &err), &err);
    must(cuda->download(device, halves, to, (rows - 1) * columns * sizeof *halves, &err), &err);
    for (size_t i = 0; i < (rows - 1) * columns; i++)
        if (halves[i] != apr_f32_to_f16(w[columns + i])) fail_msg("%s: number %zu as FP16 is another one", what, i);
    free(w);
    free(out);
    free(halves);
    free(ids);
}

/* --- products --- */

/* Errors relative to the sum of the products' magnitudes. */
static double worst_error(const float *out, const float *x, const float *w, const float *bias, int64_t n_tokens, int64_t n_out,
                          int64_t n_in)
{
    double worst = 0.0;
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t o = 0; o < n_out; o++) {
            double sum = bias != NULL ? (double)bias[o] : 0.0, magnitude = fabs(sum) + 1e-30;
            for (int64_t i = 0; i < n_in; i++) {
                const double product = (double)x[t * n_in + i] * (double)w[o * n_in + i];
                sum += product;
                magnitude += fabs(product);
            }
            const double error = fabs((double)out[t * n_out + o] - sum) / magnitude;
            if (!(error <= worst)) worst = error;
        }
    return worst;
}

static void check_linear(const repacked *r, int64_t n_tokens, double bound, const char *what)
{
    const int64_t n_out = r->m.packing.rows, n_in = r->m.packing.columns;
    const size_t n_x = (size_t)(n_tokens * n_in), n_y = (size_t)(n_tokens * n_out);
    const size_t work_bytes = apr_cuda_linear_bytes(n_tokens, n_in, n_out, false);
    float *const w = numbers_of(r), *const x = noises(n_x), *const bias = noises((size_t)n_out);
    float *const out = malloc(n_y * sizeof *out), *const again = malloc(n_y * sizeof *again);
    apr_linear_args a = {.n_tokens = n_tokens, .n_in = n_in, .n_out = n_out, .weight = &r->device};

    a.x = on_device(x, n_x * sizeof *x);
    a.bias = n_tokens % 2 == 1 ? on_device(bias, (size_t)n_out * sizeof *bias) : NULL;
    a.out = on_device(NULL, n_y * sizeof *out);
    a.work = (apr_workspace){.data = on_device(NULL, work_bytes), .slice = work_bytes / sizeof(float), .n_threads = 1};
    const apr_op_args args = {.linear = a};
    run_op(APR_OP_LINEAR, &args, a.out, out, n_y);
    const double error = worst_error(out, x, w, a.bias != NULL ? bias : NULL, n_tokens, n_out, n_in);
    if (!(error <= bound)) fail_msg("%s: %lld tokens are off by %g", what, (long long)n_tokens, error);
    run_op(APR_OP_LINEAR, &args, a.out, again, n_y);
    assert_memory_equal(again, out, n_y * sizeof *out);
    for (float **p = (float *[]){w, x, bias, out, again, NULL}; *p != NULL; p++) free(*p);
}

/* As latent attention has it: a part of each head's rows along which inputs go, or whose outputs they are. */
static void check_heads(const repacked *r, apr_linear_heads heads, int64_t n_rows, int64_t n_tokens, double bound, const char *what)
{
    const int64_t columns = r->m.packing.columns;
    const int64_t n_in = heads.transposed ? n_rows : columns, n_out = heads.transposed ? columns : n_rows;
    const size_t n_x = (size_t)(n_tokens * heads.n * n_in), n_y = (size_t)(n_tokens * heads.n * n_out);
    const size_t work_bytes = apr_cuda_linear_heads_bytes(n_tokens, &heads, n_in, columns, false);
    float *const x = noises(n_x), *const out = malloc(n_y * sizeof *out), *const reference = malloc(n_y * sizeof *reference);
    float *const slice = malloc(apr_linear_slice(columns) * sizeof *slice);
    apr_op_args args = {.linear = {.n_tokens = n_tokens, .n_in = n_in, .n_out = n_out, .heads = heads, .weight = &r->m.tensor}};
    apr_tensor flat = r->m.tensor;
    double most = 1e-30, off = 0.0;

    flat.rank = 2, flat.dims[0] = r->m.packing.rows, flat.dims[1] = columns;
    args.linear.weight = &flat;
    args.linear.x = x;
    args.linear.out = reference;
    args.linear.work = (apr_workspace){.data = slice, .slice = apr_linear_slice(columns), .n_threads = 1};
    apr_ref_backend.ops[APR_OP_LINEAR](&args);
    args.linear.weight = &r->device;
    args.linear.x = on_device(x, n_x * sizeof *x);
    args.linear.out = on_device(NULL, n_y * sizeof *out);
    args.linear.work = (apr_workspace){.data = on_device(NULL, work_bytes), .slice = work_bytes / sizeof(float), .n_threads = 1};
    run_op(APR_OP_LINEAR, &args, args.linear.out, out, n_y);
    for (size_t i = 0; i < n_y; i++) {
        assert_true(isfinite(out[i]));
        most = fmax(most, fabs((double)reference[i]));
        off = fmax(off, fabs((double)out[i] - (double)reference[i]));
    }
    if (!(off <= bound * most))
        fail_msg("%s: %lld tokens of %lld heads are off by %g", what, (long long)n_tokens, (long long)heads.n, off / most);
    for (float **p = (float *[]){x, out, reference, slice, NULL}; *p != NULL; p++) free(*p);
}

/* A few tokens straight from the codes, and many through FP16. */
static void check_matrix(const packed_kind *kind)
{
    static const int64_t few[] = {1, 2, 3, 5, 8};
    repacked *const r = malloc(sizeof *r);

    assert_non_null(r);
    put_on_device(r, kind);
    check_rows(r, kind->what);
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) check_linear(r, few[i], 3e-6, kind->what);
    check_linear(r, 40, 2e-3, kind->what);
    check_linear(r, MOST_TOKENS, 2e-3, kind->what);
    if (r->m.packing.rows % 4 == 0)
        for (int64_t n_tokens = 1; n_tokens <= 41; n_tokens += 20) {
            const int64_t rows = r->m.packing.rows / 4;
            const double bound = n_tokens <= APR_CUDA_FEW_TOKENS ? 1e-5 : 2e-3;
            check_heads(r, (apr_linear_heads){.n = 4, .rows = rows, .first = 1, .transposed = true}, rows - 1, n_tokens, bound, kind->what);
            check_heads(r, (apr_linear_heads){.n = 4, .rows = rows, .first = rows / 2}, rows - rows / 2, n_tokens, bound, kind->what);
        }
    packed_matrix_free(&r->m);
    free(r);
    release_all();
}

static void every_layout_is_multiplied_as_it_is_defined(void **state)
{
    (void)state;
    for (const packed_kind *kind = packed_kinds; kind->what != NULL; kind++) check_matrix(kind);
}

/* Rows long enough that warps share them, and more rows than a block has. */
static void larger_matrices_are_multiplied_as_they_are_defined(void **state)
{
    (void)state;
    for (const packed_kind *kind = packed_kinds; kind->what != NULL; kind++) {
        packed_kind large = *kind;
        large.rows *= 5;
        large.columns *= 32;
        check_matrix(&large);
    }
}

/* --- experts --- */

static double distance(const float *a, const float *b, size_t n)
{
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / (norm > 0.0 ? norm : 1.0));
}

enum { N_EXPERTS = 5, N_USED = 2, N_IN = 96, N_MID = 64, N_OUT = 32, WIDE = 8 };

typedef struct expert_stack {
    repacked all;
    apr_packing packings[N_EXPERTS];
    apr_tensor host[N_EXPERTS], device;
} expert_stack;

static void make_stack(expert_stack *s, packed_kind kind, int64_t rows, int64_t columns)
{
    kind.n_matrices = N_EXPERTS;
    kind.rows = rows;
    kind.columns = columns;
    if (kind.n_global_scales > 0) kind.n_global_scales = N_EXPERTS;
    put_on_device(&s->all, &kind);
    for (int64_t e = 0; e < N_EXPERTS; e++) s->host[e] = packed_matrix_of(&s->all.m, e, &s->packings[e]);
    s->device = s->all.device;
    s->device.rank = 3, s->device.dims[0] = N_EXPERTS, s->device.dims[1] = rows, s->device.dims[2] = columns;
}

static void check_experts(const packed_kind *kind, int64_t n_tokens)
{
    enum { IN = N_IN * WIDE, MID = N_MID * WIDE, ROUTE = 2 * N_USED + 1 };
    expert_stack *const s = malloc(3 * sizeof *s);
    const size_t n_x = (size_t)n_tokens * IN, n_y = (size_t)n_tokens * N_OUT,
                 work_bytes = apr_cuda_experts_bytes(n_tokens, IN, MID, N_OUT, N_USED);
    float *const x = noises(n_x), *const routes = noises((size_t)n_tokens * ROUTE), *const reference = malloc(n_y * sizeof *reference);
    float *const out = malloc(n_y * sizeof *out), *const slice = malloc(apr_experts_slice(IN, MID) * sizeof *slice);

    assert_non_null(s);
    make_stack(&s[0], *kind, MID, IN);
    make_stack(&s[1], *kind, MID, IN);
    make_stack(&s[2], *kind, N_OUT, MID);
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t k = 0; k < N_USED; k++) routes[t * ROUTE + k] = (float)((3 * t + k) % N_EXPERTS);
    apr_op_args args = {
        .experts = {.n_tokens = n_tokens, .n_in = IN, .n_mid = MID, .n_out = N_OUT, .n_experts = N_EXPERTS, .n_used = N_USED}};
    args.experts.glu.activation = APR_ACT_SILU;
    args.experts.x = x, args.experts.routes = routes, args.experts.out = reference;
    args.experts.gate = s[0].host, args.experts.up = s[1].host, args.experts.down = s[2].host;
    args.experts.work = (apr_workspace){.data = slice, .slice = apr_experts_slice(IN, MID), .n_threads = 1};
    apr_ref_backend.ops[APR_OP_EXPERTS](&args);
    args.experts.x = on_device(x, n_x * sizeof *x);
    args.experts.routes = on_device(routes, (size_t)n_tokens * ROUTE * sizeof *routes);
    args.experts.out = on_device(NULL, n_y * sizeof *out);
    args.experts.gate = &s[0].device, args.experts.up = &s[1].device, args.experts.down = &s[2].device;
    args.experts.work = (apr_workspace){.data = on_device(NULL, work_bytes), .slice = work_bytes / sizeof(float), .n_threads = 1};
    run_op(APR_OP_EXPERTS, &args, args.experts.out, out, n_y);
    if (!(distance(out, reference, n_y) <= 3e-5)) fail_msg("%s: experts are off by %g", kind->what, distance(out, reference, n_y));
    for (int i = 0; i < 3; i++) packed_matrix_free(&s[i].all.m);
    for (float **p = (float *[]){x, routes, reference, out, slice, NULL}; *p != NULL; p++) free(*p);
    free(s);
    release_all();
}

static void experts_are_read_out_of_their_stack(void **state)
{
    (void)state;
    for (const packed_kind *kind = packed_kinds; kind->what != NULL; kind++)
        for (int64_t n_tokens = 1; n_tokens <= 70; n_tokens += 69) check_experts(kind, n_tokens);
}

/* --- figures --- */

static void time_kind(const char *what, int64_t rows, int64_t columns)
{
    enum { TIMES = 200 };
    const packed_kind *kind = packed_kinds;
    repacked *const r = malloc(sizeof *r);
    apr_error err = {0};
    struct timespec begin, end;

    while (strcmp(kind->what, what) != 0) kind++;
    packed_kind large = *kind;
    large.rows = rows, large.columns = columns;
    put_on_device(r, &large);
    float *const x = noises((size_t)columns);
    apr_op_args args = {.linear = {.n_tokens = 1, .n_in = columns, .n_out = rows, .weight = &r->device}};
    args.linear.x = on_device(x, (size_t)columns * sizeof *x);
    args.linear.out = on_device(NULL, (size_t)rows * sizeof *x);
    for (int pass = 0; pass < 2; pass++) {
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < TIMES; i++) must(cuda->run(device, APR_OP_LINEAR, &args, &err), &err);
        must(cuda->check(device, "timing", &err), &err);
        clock_gettime(CLOCK_MONOTONIC, &end);
    }
    const double seconds = ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) / TIMES;
    print_message("%-24s [%lld, %lld] x 1 token: %.1f us, %.0f GB/s\n", what, (long long)rows, (long long)columns, seconds * 1e6,
                  (double)r->repack.offsets[APR_CANONICAL_SECTIONS] / seconds * 1e-9);
    packed_matrix_free(&r->m);
    free(r);
    free(x);
    release_all();
}

static void figures(void **state)
{
    (void)state;
    static const char *const kinds[] = {"GPTQ, 4 bits", "GPTQ, act order", "AWQ", "NVFP4 that multiplies", "nf4", "int8, a scale a row"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) time_kind(kinds[i], 11008, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_is_multiplied_as_it_is_defined),
        cmocka_unit_test(larger_matrices_are_multiplied_as_they_are_defined),
        cmocka_unit_test(experts_are_read_out_of_their_stack),
        cmocka_unit_test(figures),
    };
    const apr_cuda_options options = {.stack_bytes = 256, .describe = apr_op_describe};
    apr_error err = {0};
    int n, version;
    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    apr_status status = cuda->open(&device, 0, &options, &err);
    void *blas = NULL;
    if (status == APR_OK) status = cuda->alloc(device, BLAS_BYTES, "workspace", &blas, &err);
    if (status == APR_OK) status = cuda->start_blas(device, blas, BLAS_BYTES, &version, &err);
    if (status != APR_OK) {
        printf("%s\n", err.text);
        return 1;
    }
    const int failed = cmocka_run_group_tests_name("gpu_packed", tests, NULL, NULL);
    cuda->close(device);
    return failed;
}
