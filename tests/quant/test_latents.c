/* test_latents.c - the trainable form of blocks: the same values, gradients against differences of real numbers, what steps promise. */
#include "quant/heal/latents.h"

#include "formats/base/crc32.h"
#include "formats/number/half.h"
#include "formats/tensor/model.h"
#include "kernels/host/codecs/levels.h"
#include "kernels/rows.h"
#include "quant/feedback/grid.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 2048, MOST = 300 };

static uint32_t seed = 1;
static float noise(void)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        seed = seed * 1664525u + 1013904223u;
        sum += (float)(seed >> 8) * 0x1p-24f - 0.5f;
    }
    return sum;
}

/* Weights, their blocks and the latents of those. */
typedef struct subject {
    apr_dtype dtype;
    float weights[N], values[N];
    uint8_t bytes[N * 4];
    size_t n_bytes;
    apr_latents l;
} subject;

static subject *make(apr_dtype dtype)
{
    subject *const s = calloc(1, sizeof *s);
    seed = 7u + (uint32_t)dtype;
    s->dtype = dtype;
    for (int i = 0; i < N; i++) s->weights[i] = 0.05f * noise() + (i / 256 == 3 ? 0.02f : 0.0f);
    if (dtype != APR_F32) memset(s->weights + 1024, 0, 256 * sizeof *s->weights); /* blocks whose scale is 0 */
    apr_host_codecs()[dtype].encode(s->weights, s->bytes, N);
    apr_host_codecs()[dtype].decode(s->bytes, s->values, N);
    s->n_bytes = (size_t)apr_row_bytes(dtype, N);
    assert_int_equal(apr_latents_open(&s->l, dtype, N, s->bytes, NULL), APR_OK);
    return s;
}

static void drop(subject *s)
{
    apr_latents_close(&s->l);
    free(s);
}

static const apr_latent_rates usual = {0.006f, 0.02f, 5e-4f, 3e-4f}, nearly_none = {1e-30f, 1e-30f, 1e-30f, 0.0f};

static int next_type(int dtype)
{
    do dtype++;
    while (dtype < APR_DTYPE_COUNT && !(apr_latents_support((apr_dtype)dtype) && apr_can_encode((apr_dtype)dtype)));
    return dtype;
}

/* A step that moves nothing stores every block again: the same bytes, whatever the latents of codes have inside of their cells. */
static void test_stored_again_as_the_same_bytes(void **state)
{
    (void)state;
    int n_types = 0;
    for (int d = next_type(-1); d < APR_DTYPE_COUNT; d = next_type(d), n_types++) {
        subject *const s = make((apr_dtype)d);
        float gradients[N];
        for (int i = 0; i < N; i++) gradients[i] = noise();
        for (int k = 0; k < 3; k++) {
            if (k > 0) apr_latents_start(&s->l, 0, s->l.n_blocks, s->weights, k == 1 ? 0.7f : 1.0f);
            apr_latents_step(&s->l, 0, s->l.n_blocks, gradients, &nearly_none, 1);
            if (memcmp(s->l.blocks, s->bytes, s->n_bytes) != 0) fail_msg("%s", apr_dtypes[d].name);
        }
        drop(s);
    }
    assert_true(n_types >= 21);
}

/* --- gradients: the values as a smooth function of the latents, in float64 --- */

typedef struct layout {
    int sub_scales, sub_mins, scale, min_scale, n; /* -1: the block has none */
} layout;

static layout layout_of(const apr_grid *g)
{
    layout a = {-1, -1, -1, -1, g->elems};
    const int n_subs = g->elems / g->sub_elems;
    if (g->steps == APR_GRID_SUB_SCALE || g->steps == APR_GRID_E4M3) a.sub_scales = a.n, a.n += n_subs;
    if (g->min_low < g->min_high) a.sub_mins = a.n, a.n += n_subs;
    if (g->steps == APR_GRID_HALF || g->steps == APR_GRID_SUB_SCALE) a.scale = a.n++;
    if (g->fits_min) a.min_scale = a.n++;
    return a;
}

/* Half of an E4M3 number, on the line between the two that are next to it in the order of their bytes. */
static double e4m3_line(int at, double x)
{
    const int low = at > 0 ? at - 1 : at, high = at < 126 ? at + 1 : at;
    const double slope = ((double)apr_e4m3_to_f32((uint8_t)high) - (double)apr_e4m3_to_f32((uint8_t)low)) / (high - low);
    return 0.5 * ((double)apr_e4m3_to_f32((uint8_t)at) + (x - at) * slope);
}

/* Codes of a unit of latents: E2M1's values are half of its codes, and the levels of a table about 1 apart. */
static double codes_of_unit(const apr_grid *g)
{
    return g->is_e2m1 ? 2.0 : g->levels != NULL ? (g->high - g->low) / (g->n_levels - 1) : 1.0;
}

/* The sum of gradients times values. */
static double smooth(const apr_grid *g, const apr_grid_block *b, const double *x, const float *gradients)
{
    const layout a = layout_of(g);
    double sum = 0.0;
    for (int i = 0; i < g->elems; i++) {
        const int s = i / g->sub_elems;
        const double sub = a.sub_scales >= 0 ? x[a.sub_scales + s] : b->scale[s], min = a.sub_mins >= 0 ? x[a.sub_mins + s] : b->min[s];
        const double d = a.scale >= 0 ? copysign(exp(x[a.scale]), (double)apr_f16_to_f32(b->d)) : 0.0;
        const double dmin = a.min_scale >= 0 ? copysign(exp(x[a.min_scale]), (double)apr_f16_to_f32(b->dmin)) : 0.0;
        const double fixed = g->steps == APR_GRID_E4M3 ? e4m3_line(b->scale[s], sub) : ldexp(1.0, b->scale[s] - 128);
        sum += gradients[i] * ((a.scale >= 0 ? d * sub : fixed) * codes_of_unit(g) * x[i] - dmin * min);
    }
    return sum;
}

static void check_gradient(const subject *s, int64_t block)
{
    const apr_grid *const g = s->l.grid;
    apr_grid_block b;
    double x[MOST];
    float gradients[APR_GRID_ELEMS], of[MOST];

    g->unpack(s->bytes + (size_t)block * s->l.block_bytes, &b);
    for (int i = 0; i < g->elems; i++) gradients[i] = noise();
    apr_latents_gradient(&s->l, block, gradients, of);
    assert_int_equal(s->l.n_latents, layout_of(g).n);
    for (int i = 0; i < s->l.n_latents; i++) x[i] = s->l.latents[block * s->l.n_latents + i];
    for (int i = 0; i < s->l.n_latents; i++) {
        const double at = x[i], h = 1e-5 * fmax(1.0, fabs(at));
        if (isinf(at)) {
            assert_true(of[i] == 0.0f);
            continue;
        }
        x[i] = at + h;
        const double above = smooth(g, &b, x, gradients);
        x[i] = at - h;
        const double expected = (above - smooth(g, &b, x, gradients)) / (2.0 * h);
        x[i] = at;
        const double scale = fmax(fabs(expected), 1e-3 * fabs(above));
        if (!(fabs(of[i] - expected) <= 1e-5 * scale + 1e-9))
            fail_msg("%s, latent %d: %g, by differences %g", apr_dtypes[s->dtype].name, i, of[i], expected);
    }
}

static void test_gradients_are_those_of_the_smooth_value(void **state)
{
    (void)state;
    for (int d = next_type(-1); d < APR_DTYPE_COUNT; d = next_type(d)) {
        subject *const s = make((apr_dtype)d);
        for (int64_t block = 0; block < s->l.n_blocks && s->l.grid != NULL; block += 3) check_gradient(s, block);
        drop(s);
    }
}

/* --- steps --- */

/* The squared distance of sums of 8 stored values from those of the weights, and its gradient: to lower it, codes have to turn. */
static double distance(const subject *s, float *gradients)
{
    float values[N];
    double sum = 0.0;
    apr_host_codecs()[s->dtype].decode(s->l.blocks, values, N);
    for (int i = 0; i < N; i += 8) {
        float missing = 0.0f;
        for (int k = i; k < i + 8; k++) missing += values[k] - s->weights[k];
        for (int k = i; k < i + 8; k++) gradients[k] = missing;
        sum += (double)missing * missing;
    }
    return sum;
}

static void test_steps_lower_a_loss(void **state)
{
    (void)state;
    for (int d = next_type(-1); d < APR_DTYPE_COUNT; d = next_type(d)) {
        subject *const s = make((apr_dtype)d);
        float gradients[N];
        for (int i = 0; i < N; i++) s->weights[i] *= 1.07f;
        apr_latents_start(&s->l, 0, s->l.n_blocks, s->weights, 1.0f);
        const double before = distance(s, gradients);
        for (int step = 1; step <= 120; step++) {
            const float left = 1.0f - (float)step / 120.0f;
            apr_latents_step(&s->l, 0, s->l.n_blocks, gradients,
                             &(apr_latent_rates){0.006f * left, 0.02f * left, 2e-3f * left, 3e-4f * left}, step);
            distance(s, gradients);
        }
        const double after = distance(s, gradients);
        if (!(after < 0.4 * before)) fail_msg("%s: %g, before %g", apr_dtypes[d].name, after, before);
        apr_latent_changes changes = {0};
        apr_latents_compare(&s->l, s->bytes, &changes);
        assert_int_equal(changes.n_codes, s->l.grid != NULL ? N : 0);
        assert_true(changes.n_turned <= changes.n_codes);
        drop(s);
    }
}

/* A latent beyond its range is held there only while the gradient pushes outwards. */
static void test_ends_of_ranges(void **state)
{
    (void)state;
    subject *const s = make(APR_Q4_K);
    float gradients[N], of[MOST];
    for (int i = 0; i < N; i++) gradients[i] = -1.0f;
    s->l.latents[0] = 15.6f;
    s->l.latents[1] = 15.4f;
    s->l.latents[2] = -0.6f;
    apr_latents_gradient(&s->l, 0, gradients, of);
    assert_true(of[0] == 0.0f && of[1] < 0.0f && of[2] < 0.0f);
    for (int i = 0; i < N; i++) gradients[i] = 1.0f;
    apr_latents_gradient(&s->l, 0, gradients, of);
    assert_true(of[0] > 0.0f && of[1] > 0.0f && of[2] == 0.0f);
    drop(s);
}

/* Where the encoder rounded to, a code turns after its latent has gone the rest of the way. */
static void test_start_is_inside_of_the_cell(void **state)
{
    (void)state;
    for (int d = next_type(-1); d < APR_DTYPE_COUNT; d = next_type(d)) {
        subject *const s = make((apr_dtype)d);
        if (s->l.grid != NULL) {
            const float middle = s->l.latents[0];
            apr_latents_start(&s->l, 0, s->l.n_blocks, s->weights, 1.0f);
            const float whole = s->l.latents[0];
            apr_latents_start(&s->l, 0, s->l.n_blocks, s->weights, 0.5f);
            assert_true(fabsf(s->l.latents[0] - 0.5f * (middle + whole)) < 1e-6f);
            assert_true(fabsf(whole - middle) < 2.0f);
        }
        drop(s);
    }
}

/* Blocks are independent: in ranges on several threads or all at once, the same bytes. */
static void test_the_same_bytes_for_any_number_of_threads(void **state)
{
    (void)state;
    static const apr_dtype types[] = {APR_Q4_K, APR_Q6_K, APR_MXFP4, APR_BF16};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        subject *const one = make(types[t]), *const many = make(types[t]);
        float gradients[N];
        for (int step = 1; step <= 5; step++) {
            for (int i = 0; i < N; i++) gradients[i] = noise();
            apr_latents_step(&one->l, 0, one->l.n_blocks, gradients, &usual, step);
#pragma omp parallel for schedule(dynamic) num_threads(4)
            for (int64_t b = 0; b < many->l.n_blocks; b++) apr_latents_step(&many->l, b, 1, gradients + b * many->l.elems, &usual, step);
        }
        assert_memory_equal(one->l.blocks, many->l.blocks, one->n_bytes);
        assert_memory_equal(one->l.latents, many->l.latents, (size_t)(one->l.n_blocks * one->l.n_latents) * sizeof(float));
        drop(one);
        drop(many);
    }
}

/* --- the tensors of a model --- */

enum { ROWS = 8, COLUMNS = 64 };

typedef struct table {
    apr_tensor tensors[2];
    uint8_t matrix[ROWS * COLUMNS * 2];
    float bias[ROWS];
} table;

/* A matrix of ROWS in Q8_0, and a vector; their views have rotary rows in the other order. */
static void fill_table(table *t, apr_tensor views[2])
{
    static const apr_step step = {APR_STEP_PAIRS_TO_HALVES, {1}};
    float weights[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) weights[i] = noise();
    for (int i = 0; i < ROWS; i++) t->bias[i] = noise();
    apr_host_codecs()[APR_Q8_0].encode(weights, t->matrix, ROWS * COLUMNS);
    t->tensors[0] = (apr_tensor){.name = "matrix",
                                 .dtype = APR_Q8_0,
                                 .rank = 2,
                                 .dims = {ROWS, COLUMNS},
                                 .data = t->matrix,
                                 .n_bytes = (uint64_t)apr_row_bytes(APR_Q8_0, ROWS * COLUMNS)};
    t->tensors[1] = (apr_tensor){
        .name = "bias", .dtype = APR_F32, .rank = 1, .dims = {ROWS}, .data = (const uint8_t *)t->bias, .n_bytes = sizeof t->bias};
    for (int i = 0; i < 2; i++) {
        views[i] = t->tensors[i];
        views[i].pending = step;
    }
}

/* A gradient in one row of a view moves that row alone, wherever the file stores it. */
/* Blocks, latents, means and powers after three steps, the last of which has numbers that are not finite or beyond all ranges. */
static uint32_t crc_of_steps(apr_dtype dtype)
{
    subject *const s = make(dtype);
    const size_t n = (size_t)(s->l.n_blocks * s->l.n_latents), n_means = n * sizeof *s->l.mean;
    float gradients[N];
    uint32_t crc;

    apr_latents_start(&s->l, 0, s->l.n_blocks, s->weights, 1.0f);
    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < N; i++) gradients[i] = noise() * (step == 3 && i % 7 == 0 ? 1e30f : 1.0f);
        if (step == 3) gradients[500] = NAN, gradients[501] = INFINITY, s->l.latents[600] = NAN, s->l.latents[601] = -INFINITY;
        apr_latents_step(&s->l, 0, s->l.n_blocks, gradients, &usual, step);
    }
    crc = apr_crc32(0, s->l.blocks, s->n_bytes);
    for (size_t i = 0; i < n; i++) /* any NaN is like any other */
        if (isnan(s->l.latents[i])) s->l.latents[i] = 0.0f, s->l.mean[i] = s->l.power[i] = 0;
    crc = apr_crc32(apr_crc32(apr_crc32(crc, s->l.latents, n * sizeof *s->l.latents), s->l.mean, n_means), s->l.power, n_means);
    drop(s);
    return crc;
}

static void test_the_same_numbers_on_every_level_of_cpu(void **state)
{
    const apr_cpu_level before = apr_host_level();
    int n_compared = 0;
    (void)state;

    for (int d = next_type(-1); d < APR_DTYPE_COUNT; d = next_type(d)) {
        assert_int_equal(apr_use_cpu_level(APR_CPU_PLAIN, NULL), APR_OK);
        const uint32_t expected = crc_of_steps((apr_dtype)d);
        for (int level = APR_CPU_PLAIN + 1; level < APR_CPU_LEVELS; level++) {
            if (apr_use_cpu_level((apr_cpu_level)level, NULL) != APR_OK) continue;
            if (crc_of_steps((apr_dtype)d) != expected) fail_msg("%s: other numbers on level %d", apr_dtypes[d].name, level);
            n_compared++;
        }
    }
    assert_int_equal(apr_use_cpu_level(before, NULL), APR_OK);
    if (n_compared == 0) skip();
}

static void test_rows_of_a_view_train_the_stored_rows(void **state)
{
    (void)state;
    static const bool wanted[2] = {true, true};
    table t;
    apr_tensor views[2];
    apr_trained trained;
    float before[ROWS * COLUMNS], after[ROWS * COLUMNS], gradient[ROWS * COLUMNS] = {0};

    fill_table(&t, views);
    for (int i = 0; i < 2; i++) assert_int_equal(apr_trained_find(t.tensors, 2, &views[i]), i);
    assert_int_equal(apr_trained_open(&trained, t.tensors, 2, wanted, NULL), APR_OK);
    for (int i = 0; i < 2; i++) {
        apr_tensor_set_data(&views[i], t.tensors[i].data);
        views[i].pending = (apr_step){APR_STEP_PAIRS_TO_HALVES, {1}};
    }
    for (int i = 0; i < COLUMNS; i++) gradient[3 * COLUMNS + i] = 1.0f;
    apr_decode_rows(&views[0], 0, ROWS, before);
    apr_trained_step(&trained, &views[0], gradient, &(apr_latent_rates){2.0f, 0.0f, 0.0f, 0.0f}, 1);
    apr_decode_rows(&views[0], 0, ROWS, after);
    for (int r = 0; r < ROWS; r++)
        assert_int_equal(memcmp(before + r * COLUMNS, after + r * COLUMNS, COLUMNS * sizeof *before) == 0, r != 3);
    assert_true(apr_tensor_row(&views[0], 3) != t.tensors[0].data + 3 * t.tensors[0].n_bytes / ROWS); /* stored elsewhere */

    const float of_bias[ROWS] = {0.0f, 0.0f, 1.0f};
    float stored[ROWS];
    memcpy(stored, t.bias, sizeof stored);
    apr_trained_step(&trained, &views[1], of_bias, &(apr_latent_rates){0.0f, 0.0f, 0.0f, 0.25f}, 1);
    const size_t moved = (size_t)(apr_tensor_row(&views[1], 2) - views[1].data) / sizeof(float);
    for (size_t i = 0; i < ROWS; i++) {
        float now;
        memcpy(&now, t.tensors[1].data + i * sizeof now, sizeof now);
        assert_true(fabsf(now - (i == moved ? stored[i] - 0.25f : stored[i])) < 1e-5f);
    }
    apr_trained_close(&trained);
}

/* Best blocks come back, and a state that was written continues with the same bytes; damage in it is noticed. */
static void test_states_are_kept(void **state)
{
    (void)state;
    static const bool wanted[2] = {true, true};
    table t, again;
    apr_tensor views[2], others[2];
    apr_trained one, two;
    float gradient[ROWS * COLUMNS];
    FILE *const file = tmpfile();

    seed = 5;
    fill_table(&t, views);
    memcpy(&again, &t, sizeof t);
    for (int i = 0; i < 2; i++) again.tensors[i].data = i == 0 ? again.matrix : (const uint8_t *)again.bias;
    assert_int_equal(apr_trained_open(&one, t.tensors, 2, wanted, NULL), APR_OK);
    assert_int_equal(apr_trained_open(&two, again.tensors, 2, wanted, NULL), APR_OK);
    for (int i = 0; i < 2; i++) views[i].data = t.tensors[i].data, others[i] = views[i], others[i].data = again.tensors[i].data;
    for (int i = 0; i < ROWS * COLUMNS; i++) gradient[i] = noise();
    apr_trained_step(&one, &views[0], gradient, &(apr_latent_rates){0.7f, 0.0f, 0.1f, 0.0f}, 1);
    apr_trained_keep(&one);
    apr_trained_step(&one, &views[0], gradient, &(apr_latent_rates){0.7f, 0.0f, 0.1f, 0.0f}, 2);
    assert_true(apr_trained_write(&one, file));
    rewind(file);
    assert_true(apr_trained_read(&two, file));
    apr_trained_step(&one, &views[0], gradient, &(apr_latent_rates){0.7f, 0.0f, 0.1f, 0.0f}, 3);
    apr_trained_step(&two, &others[0], gradient, &(apr_latent_rates){0.7f, 0.0f, 0.1f, 0.0f}, 3);
    assert_memory_equal(t.tensors[0].data, again.tensors[0].data, t.tensors[0].n_bytes);
    assert_memory_not_equal(one.items[0].best, t.tensors[0].data, t.tensors[0].n_bytes);
    apr_trained_put_back(&one);
    assert_memory_equal(one.items[0].best, t.tensors[0].data, t.tensors[0].n_bytes);
    fseek(file, 100, SEEK_SET);
    const int was = fgetc(file);
    fseek(file, 100, SEEK_SET);
    fputc(was ^ 1, file);
    rewind(file);
    assert_false(apr_trained_read(&two, file));
    fclose(file);
    apr_trained_close(&one);
    apr_trained_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stored_again_as_the_same_bytes),
        cmocka_unit_test(test_gradients_are_those_of_the_smooth_value),
        cmocka_unit_test(test_steps_lower_a_loss),
        cmocka_unit_test(test_ends_of_ranges),
        cmocka_unit_test(test_start_is_inside_of_the_cell),
        cmocka_unit_test(test_the_same_bytes_for_any_number_of_threads),
        cmocka_unit_test(test_the_same_numbers_on_every_level_of_cpu),
        cmocka_unit_test(test_rows_of_a_view_train_the_stored_rows),
        cmocka_unit_test(test_states_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
