/* kernels/cuda/gemm/gemm.cu through the table of functions: products of many tokens, tile by tile, against a few tokens at a time.
 *
 * usage: gpu_linear [TEST]: one of them, by its name, in which * stands for anything. */
#include "formats/number/half.h"
#include "kernels/cuda_loader.h"
#include "runtime/program/op_spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_TOKENS = 136, BLAS_BYTES = 32 << 20 };
_Static_assert((int)MOST_TOKENS > (int)APR_CUDA_CAREFUL_TOKENS, "products of many tokens are to be seen, too");
static const int64_t n_tokens_of[] = {40, MOST_TOKENS}; /* multiples of what is few */

static const apr_cuda_api *cuda;
static apr_cuda_device *device;

static void must(apr_status status, const apr_error *err)
{
    if (status != APR_OK) fail_msg("%s", err->text);
}

static void *on_device(const void *from, size_t n_bytes)
{
    apr_error err = {0};
    void *p;
    must(cuda->alloc(device, n_bytes, "a test", &p, &err), &err);
    if (from != NULL) must(cuda->upload(device, p, from, n_bytes, &err), &err);
    return p;
}

static uint64_t seed = 88172645463325252u;
static float noise(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static float *noises(size_t n, float scale)
{
    float *const x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = noise() * scale;
    return x;
}

/* [n_out, n_in] of noise as dtype, on the device. */
static apr_tensor matrix(apr_dtype dtype, int64_t n_out, int64_t n_in)
{
    apr_tensor t = {.name = "weights", .dtype = dtype, .rank = 2, .dims = {n_out, n_in}};
    const size_t row_bytes = (size_t)apr_row_bytes(dtype, n_in);
    uint8_t *const bytes = malloc((size_t)n_out * row_bytes);
    float *const row = malloc((size_t)n_in * sizeof *row);

    for (int64_t r = 0; r < n_out; r++) {
        for (int64_t i = 0; i < n_in; i++) row[i] = noise();
        apr_ref_codecs[dtype].encode(row, bytes + (size_t)r * row_bytes, n_in);
    }
    t.n_bytes = (uint64_t)n_out * row_bytes;
    t.data = on_device(bytes, t.n_bytes);
    free(row);
    free(bytes);
    return t;
}

static void run_linear(apr_linear_args args, float *out, size_t n_out_bytes)
{
    apr_op_args all = {.linear = args};
    apr_error err = {0};
    must(cuda->run(device, APR_OP_LINEAR, &all, &err), &err);
    must(cuda->download(device, out, args.out, n_out_bytes, &err), &err);
}

/* Largest difference of a token's outputs, over the token's largest output. */
static double worst_difference(const float *a, const float *b, int64_t n_tokens, int64_t n_out)
{
    double worst = 0.0;
    for (int64_t t = 0; t < n_tokens; t++, a += n_out, b += n_out) {
        double most = 0.0, off = 0.0;
        for (int64_t r = 0; r < n_out; r++) {
            assert_true(isfinite(a[r]) && isfinite(b[r]));
            most = fmax(most, fabs((double)a[r]));
            off = fmax(off, fabs((double)a[r] - (double)b[r]));
        }
        if (most > 0.0) worst = fmax(worst, off / most);
    }
    return worst;
}

static void compare(apr_dtype dtype, int64_t n_out, int64_t n_in, int64_t n_tokens)
{
    const size_t n_x = (size_t)n_tokens * (size_t)n_in, out_bytes = (size_t)n_tokens * (size_t)n_out * sizeof(float);
    float *const x = noises(n_x, 1.0f), *const bias = noises((size_t)n_out, 0.1f);
    float *const many = malloc(out_bytes), *const few = malloc(out_bytes);
    const size_t work_bytes = apr_cuda_linear_bytes(n_tokens, n_in, n_out, dtype == APR_F16);

    /* tokens that FP16 could not hold, and whose numbers it would lose: each has its own power of two */
    for (int64_t i = 0; i < n_in; i++) {
        x[1 * n_in + i] *= 1e9f;
        x[2 * n_in + i] *= 1e-9f;
        x[3 * n_in + i] = 0.0f;
    }
    x[4 * n_in + n_in / 2] = 30000.0f; /* one large number among small ones */
    const apr_tensor weight = matrix(dtype, n_out, n_in);
    apr_linear_args args = {.n_tokens = n_tokens, .n_in = n_in, .n_out = n_out, .weight = &weight};
    args.x = on_device(x, n_x * sizeof *x);
    args.bias = on_device(bias, (size_t)n_out * sizeof *bias);
    args.out = on_device(NULL, out_bytes);
    args.work = (apr_workspace){.data = on_device(NULL, work_bytes), .slice = work_bytes / sizeof(float), .n_threads = 1};
    run_linear(args, many, out_bytes);
    for (int64_t t = 0; t < n_tokens; t += APR_CUDA_FEW_TOKENS) {
        apr_linear_args part = args;
        part.n_tokens = APR_CUDA_FEW_TOKENS;
        part.x += t * n_in;
        part.out += t * n_out;
        run_linear(part, few + t * n_out, APR_CUDA_FEW_TOKENS * (size_t)n_out * sizeof(float));
    }
    const double off = worst_difference(few, many, n_tokens, n_out);
    print_message("%-6s [%lld, %lld]: largest difference %.1e of a token's largest output\n", apr_dtypes[dtype].name, (long long)n_out,
                  (long long)n_in, off);
    /* FP16 has 11 bits; of few tokens it gets two parts, and 16-bit weights go through it as they are */
    const bool exact = n_tokens <= APR_CUDA_CAREFUL_TOKENS && (dtype == APR_F16 || dtype == APR_BF16);
    assert_true(off < (exact ? 1e-5 : 1e-3));
    for (void **p = (void *[]){(void *)(uintptr_t)args.x, (void *)(uintptr_t)args.bias, args.out, args.work.data,
                               (void *)(uintptr_t)weight.data, NULL};
         *p != NULL; p++)
        cuda->release(device, *p);
    free(x);
    free(bias);
    free(many);
    free(few);
}

static void products_through_tiles_are_those_from_packed_weights(void **state)
{
    (void)state;
    static const struct {
        apr_dtype dtype;
        int64_t n_out, n_in;
    } cases[] = {
        {APR_Q8_0, 18944, 3584},   {APR_Q4_K, 3584, 18944}, {APR_MXFP4, 18944, 3584}, {APR_F16, 18944, 3584}, {APR_BF16, 9409, 3584},
        {APR_F8_E4M3, 9344, 3584}, {APR_F16, 77, 1001},     {APR_BF16, 130, 33},      {APR_F32, 40, 7},       {APR_Q4_0, 65, 32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int many = 0; many < 2; many++) compare(cases[i].dtype, cases[i].n_out, cases[i].n_in, n_tokens_of[many]);
}

/* Numbers of tokens that go the same way, one chosen for the most of them (kernels/cuda/gemm/blaslt.cu), in any order. */
static void other_numbers_of_tokens_use_the_chosen_algorithm(void **state)
{
    (void)state;
    static const int64_t n_tokens[] = {160, 136, 152, 144, 160, 264, 320, 296};
    for (size_t i = 0; i < sizeof n_tokens / sizeof *n_tokens; i++) compare(APR_Q4_K, 384, 768, n_tokens[i]);
}

/* A prompt through FP16 tiles, head by head, against the same tokens a few at a time. */
static void compare_heads(apr_dtype dtype, apr_linear_heads heads, int64_t n_rows, int64_t n_columns, int64_t n_tokens)
{
    const int64_t n_in = heads.transposed ? n_rows : n_columns, n_out = heads.transposed ? n_columns : n_rows;
    const size_t n_x = (size_t)(n_tokens * heads.n * n_in), n_y = (size_t)(n_tokens * heads.n * n_out);
    const size_t work_bytes = apr_cuda_linear_heads_bytes(n_tokens, &heads, n_in, n_columns, dtype == APR_F16);
    float *const x = noises(n_x, 1.0f), *const many = malloc(n_y * sizeof *many), *const few = malloc(n_y * sizeof *few);
    const apr_tensor weight = matrix(dtype, heads.n * heads.rows, n_columns);
    apr_linear_args args = {.n_tokens = n_tokens, .n_in = n_in, .n_out = n_out, .heads = heads, .weight = &weight};

    for (int64_t i = 0; i < n_in; i++) x[2 * n_in + i] *= 1e9f; /* each head of each token has its own power of two */
    args.x = on_device(x, n_x * sizeof *x);
    args.out = on_device(NULL, n_y * sizeof *many);
    args.work = (apr_workspace){.data = on_device(NULL, work_bytes), .slice = work_bytes / sizeof(float), .n_threads = 1};
    run_linear(args, many, n_y * sizeof *many);
    for (int64_t t = 0; t < n_tokens; t += APR_CUDA_FEW_TOKENS) {
        const size_t part_floats = (size_t)(APR_CUDA_FEW_TOKENS * heads.n * n_out);
        apr_linear_args part = args;
        part.n_tokens = APR_CUDA_FEW_TOKENS;
        part.x += t * heads.n * n_in;
        part.out += t * heads.n * n_out;
        run_linear(part, few + t * heads.n * n_out, part_floats * sizeof *few);
    }
    assert_true(worst_difference(few, many, n_tokens * heads.n, n_out) < 1e-3);
    for (void **p = (void *[]){(void *)(uintptr_t)args.x, args.out, args.work.data, (void *)(uintptr_t)weight.data, NULL}; *p != NULL; p++)
        cuda->release(device, *p);
    free(x);
    free(many);
    free(few);
}

static void compare_all_heads(int64_t n_tokens)
{
    static const apr_dtype dtypes[] = {APR_F16, APR_BF16, APR_Q8_0, APR_Q4_K};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        compare_heads(dtypes[i], (apr_linear_heads){.n = 16, .rows = 256, .transposed = true}, 128, 512, n_tokens);
        compare_heads(dtypes[i], (apr_linear_heads){.n = 16, .rows = 256, .first = 128}, 128, 512, n_tokens);
        compare_heads(dtypes[i], (apr_linear_heads){.n = 200, .rows = 512, .first = 192}, 320, 512, n_tokens); /* more than one tile */
    }
    compare_heads(APR_BF16, (apr_linear_heads){.n = 3, .rows = 40, .transposed = true}, 17, 33, n_tokens);
    compare_heads(APR_F32, (apr_linear_heads){.n = 3, .rows = 40, .first = 17}, 23, 33, n_tokens);
}

static void heads_through_tiles_are_those_from_packed_weights(void **state)
{
    (void)state;
    for (int many = 0; many < 2; many++) compare_all_heads(n_tokens_of[many]);
}

/* --- other ways to the same numbers --- */

/* A product of random inputs that a test varies. */
typedef struct product {
    apr_tensor weight;
    apr_linear_args args;
    size_t n_x, out_bytes;
    float *x; /* on the host */
} product;

static product new_product(apr_dtype dtype, int64_t n_out, int64_t n_in, int64_t n_tokens, size_t tile_bytes)
{
    const size_t work_bytes = apr_cuda_linear_bytes_within(n_tokens, n_in, n_out, dtype == APR_F16, tile_bytes);
    product p = {.weight = matrix(dtype, n_out, n_in),
                 .args = {.n_tokens = n_tokens, .n_in = n_in, .n_out = n_out},
                 .n_x = (size_t)(n_tokens * n_in),
                 .out_bytes = (size_t)(n_tokens * n_out) * sizeof(float)};
    p.x = noises(p.n_x, 1.0f);
    p.args.x = on_device(p.x, p.n_x * sizeof *p.x);
    p.args.out = on_device(NULL, p.out_bytes);
    p.args.work = (apr_workspace){.data = on_device(NULL, work_bytes), .slice = work_bytes / sizeof(float), .n_threads = 1};
    return p;
}

static void free_product(product *p)
{
    for (void **at = (void *[]){(void *)(uintptr_t)p->args.x, p->args.out, p->args.work.data, (void *)(uintptr_t)p->weight.data, NULL};
         *at != NULL; at++)
        cuda->release(device, *at);
    free(p->x);
}

/* The product's outputs; the caller's to free. */
static float *outputs_of(const product *p)
{
    float *const out = malloc(p->out_bytes);
    apr_linear_args args = p->args;
    args.weight = &p->weight;
    run_linear(args, out, p->out_bytes);
    return out;
}

static void put_inputs(const product *p, const float *x)
{
    apr_error err = {0};
    must(cuda->upload(device, (void *)(uintptr_t)p->args.x, x, p->n_x * sizeof *x, &err), &err);
}

static void tiles_of_any_size_give_what_whole_matrices_do(void **state)
{
    (void)state;
    static const struct {
        apr_dtype dtype;
        int64_t n_out, n_in;
    } cases[] = {{APR_Q4_K, 3000, 2048}, {APR_MXFP4, 1025, 1024}, {APR_F8_E4M3, 1300, 777}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        product p = new_product(cases[i].dtype, cases[i].n_out, cases[i].n_in, MOST_TOKENS, APR_CUDA_DEQUANTIZED_BYTES);
        float *const whole = outputs_of(&p);
        p.args.work.slice = apr_cuda_linear_bytes_within(MOST_TOKENS, p.args.n_in, p.args.n_out, false, 1 << 20) / sizeof(float);
        float *const in_tiles = outputs_of(&p);
        assert_true(apr_cuda_dequantized_rows(p.args.n_in, p.args.n_out, 1 << 20) < p.args.n_out);
        assert_true(worst_difference(whole, in_tiles, MOST_TOKENS, p.args.n_out) < 1e-5);
        free(whole);
        free(in_tiles);
        free_product(&p);
    }
}

/* Wide products look for a power of two that all tokens share; with a bias, of zeros here, each token has its own. */
static void a_shared_power_of_two_changes_no_output(void **state)
{
    (void)state;
    const int64_t n_in = 1024, n_out = 4096;
    product p = new_product(APR_F16, n_out, n_in, MOST_TOKENS, APR_CUDA_DEQUANTIZED_BYTES);
    float *const zeros = calloc((size_t)n_out, sizeof *zeros);
    const float spreads[] = {1.0f, 0x1p-10f, 0x1p-11f,
                             0x1p-60f}; /* of a token's inputs against all others': the last two are too far off */

    for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++) {
        float *const x = malloc(p.n_x * sizeof *x);
        memcpy(x, p.x, p.n_x * sizeof *x);
        for (int64_t c = 0; c < n_in; c++) x[5 * n_in + c] *= spreads[i], x[7 * n_in + c] = 0.0f;
        put_inputs(&p, x);
        float *const shared = outputs_of(&p);
        p.args.bias = on_device(zeros, (size_t)n_out * sizeof *zeros);
        float *const own = outputs_of(&p);
        assert_true(worst_difference(own, shared, MOST_TOKENS, n_out) < 1e-5);
        for (int64_t r = 0; r < n_out; r++) assert_true(shared[7 * n_out + r] == 0.0f);
        cuda->release(device, (void *)(uintptr_t)p.args.bias);
        p.args.bias = NULL;
        free(shared);
        free(own);
        free(x);
    }
    free(zeros);
    free_product(&p);
}

static void add_in_place(const product *p, const float *other)
{
    apr_op_args args = {.add = {.n_tokens = p->args.n_tokens, .width = p->args.n_in}};
    apr_error err = {0};
    args.add.a = p->args.x;
    args.add.b = other;
    args.add.out = (float *)(uintptr_t)p->args.x;
    must(cuda->run(device, APR_OP_ADD, &args, &err), &err);
}

/* Inputs that products share become FP16 once; whatever writes to them in between is seen. */
static void inputs_that_changed_are_converted_again(void **state)
{
    (void)state;
    product p = new_product(APR_F16, 256, 512, MOST_TOKENS, APR_CUDA_DEQUANTIZED_BYTES);
    float *const more = noises(p.n_x, 1.0f), *const sums = malloc(p.n_x * sizeof *sums);
    for (size_t i = 0; i < p.n_x; i++) sums[i] = p.x[i] + more[i];

    float *const first = outputs_of(&p), *const again = outputs_of(&p); /* the second without a conversion */
    assert_memory_equal(first, again, p.out_bytes);
    put_inputs(&p, more); /* by a copy */
    float *const of_more = outputs_of(&p);
    assert_memory_not_equal(first, of_more, p.out_bytes);
    put_inputs(&p, p.x);
    float *const back = outputs_of(&p);
    assert_memory_equal(first, back, p.out_bytes);
    float *const other = on_device(more, p.n_x * sizeof *more);
    free(outputs_of(&p));
    add_in_place(&p, other); /* by an operation, right after a product */
    float *const of_sums = outputs_of(&p);
    put_inputs(&p, sums);
    float *const right = outputs_of(&p);
    assert_memory_equal(right, of_sums, p.out_bytes);

    /* by a product whose outputs are in the memory of the inputs */
    product narrow = new_product(APR_F16, 512, 512, MOST_TOKENS, APR_CUDA_DEQUANTIZED_BYTES);
    float *const once = outputs_of(&narrow);
    float *const elsewhere = narrow.args.out;
    narrow.args.out = (float *)(uintptr_t)narrow.args.x;
    free(outputs_of(&narrow));
    narrow.args.out = elsewhere;
    float *const of_outputs = outputs_of(&narrow);
    put_inputs(&narrow, once);
    float *const twice = outputs_of(&narrow);
    assert_memory_equal(twice, of_outputs, narrow.out_bytes);

    cuda->release(device, other);
    for (void **at = (void *[]){more, sums, first, again, of_more, back, of_sums, right, once, of_outputs, twice, NULL}; *at != NULL; at++)
        free(*at);
    free_product(&p);
    free_product(&narrow);
}

/* The unit whose outputs are the product's inputs; work: where it may leave them as FP16. Its outputs, the caller's to free. */
static float *run_glu(const product *p, const float *gate, const float *up, apr_workspace work)
{
    apr_op_args args = {.glu = {.n_tokens = p->args.n_tokens, .width = p->args.n_in, .shape = {.activation = APR_ACT_SILU}}};
    float *const out = malloc(p->n_x * sizeof *out);
    apr_error err = {0};
    args.glu.gate = gate;
    args.glu.up = up;
    args.glu.out = (float *)(uintptr_t)p->args.x;
    args.glu.work = work;
    must(cuda->run(device, APR_OP_GLU, &args, &err), &err);
    must(cuda->download(device, out, args.glu.out, p->n_x * sizeof *out, &err), &err);
    return out;
}

static void a_gated_unit_leaves_what_its_product_multiplies(void **state)
{
    (void)state;
    static const int64_t widths[] = {1024, 4104, 18944, 100}; /* rows of one chunk a thread, of more, and such as have none */
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int many = 0; many < 2; many++) {
            product p = new_product(APR_F16, 64, widths[i], n_tokens_of[many], APR_CUDA_DEQUANTIZED_BYTES);
            float *const gates = noises(p.n_x, 8.0f);
            float *const gate = on_device(gates, p.n_x * sizeof *gates), *const up = on_device(p.x, p.n_x * sizeof *gates);
            float *const floats = run_glu(&p, gate, up, (apr_workspace){0}), *const of_floats = outputs_of(&p);
            float *const halves = run_glu(&p, gate, up, p.args.work), *const of_halves = outputs_of(&p);
            assert_memory_equal(floats, halves, p.n_x * sizeof *floats);
            assert_memory_equal(of_floats, of_halves, p.out_bytes);
            free(run_glu(&p, gate, up, p.args.work));
            put_inputs(&p, p.x); /* what it left is of no use any more */
            float *const of_others = outputs_of(&p);
            put_inputs(&p, p.x);
            float *const right = outputs_of(&p);
            assert_memory_equal(right, of_others, p.out_bytes);
            assert_memory_not_equal(right, of_halves, p.out_bytes);
            cuda->release(device, gate);
            cuda->release(device, up);
            for (void **at = (void *[]){gates, floats, of_floats, halves, of_halves, of_others, right, NULL}; *at != NULL; at++) free(*at);
            free_product(&p);
        }
}

static void a_workspace_that_is_too_small_is_refused(void **state)
{
    (void)state;
    apr_error err = {0};
    const apr_tensor weight = matrix(APR_Q8_0, 64, 64);
    apr_op_args args = {.linear = {.n_tokens = MOST_TOKENS, .n_in = 64, .n_out = 64, .weight = &weight, .work = {.slice = 16}}};
    assert_int_equal(cuda->run(device, APR_OP_LINEAR, &args, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "'weights'"));
}

/* No launcher takes heads that share no key/value head. */
static void what_fails_is_described(void **state)
{
    (void)state;
    apr_error err = {0};
    const apr_op_args args = {
        .attend = {.n_tokens = 3, .position = 5, .n_heads = 2, .key_dim = 64, .value_dim = 64, .keys = {.dtype = APR_F16}}};
    assert_int_equal(cuda->run(device, APR_OP_ATTEND, &args, &err), APR_E_DEVICE);
    assert_non_null(strstr(err.text, "attend (3 tokens at position 5, 2 heads on 0 of 64, cache f16): "));
    assert_false(cuda->is_lost(device));
    err = (apr_error){0};
    const apr_op_args wide = {.delta = {.n_tokens = 3, .n_key_heads = 1, .n_value_heads = 1, .key_dim = 4096, .value_dim = 64}};
    assert_int_equal(cuda->run(device, APR_OP_DELTA, &wide, &err), APR_E_DEVICE); /* a state that no shared memory holds */
    assert_non_null(strstr(err.text, "delta rule (f32, 3 tokens): "));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_through_tiles_are_those_from_packed_weights),
        cmocka_unit_test(other_numbers_of_tokens_use_the_chosen_algorithm),
        cmocka_unit_test(heads_through_tiles_are_those_from_packed_weights),
        cmocka_unit_test(tiles_of_any_size_give_what_whole_matrices_do),
        cmocka_unit_test(a_shared_power_of_two_changes_no_output),
        cmocka_unit_test(inputs_that_changed_are_converted_again),
        cmocka_unit_test(a_gated_unit_leaves_what_its_product_multiplies),
        cmocka_unit_test(a_workspace_that_is_too_small_is_refused),
        cmocka_unit_test(what_fails_is_described),
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
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda->close(device);
    return failed;
}
