/* kernels/rows.h: a tensor with an adapter merged into it is what a plain double loop gives, any piece is that piece of the whole, and
 * steps go on from there. */

#include "formats/number/half.h"
#include "formats/tensor/composed.h"
#include "kernels/rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static apr_arena arena;

static int close_arena(void **state)
{
    (void)state;
    apr_arena_close(&arena);
    return 0;
}

static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)((int32_t)(*seed >> 8 & 0xffff) - 32768) / 16384.0f;
}

static float *floats(int64_t n)
{
    float *const x = apr_arena_array(&arena, (size_t)n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* [rows, columns] of noise, encoded in that type. */
static apr_tensor *tensor_of(apr_dtype dtype, int64_t rows, int64_t columns, uint32_t *seed)
{
    apr_tensor *const t = apr_arena_alloc(&arena, sizeof *t);
    float *const x = floats(rows * columns);

    *t = (apr_tensor){.name = "t", .dtype = dtype, .rank = 2, .dims = {rows, columns}};
    assert_int_equal(apr_tensor_size(t, "test", NULL), APR_OK);
    uint8_t *const bytes = apr_arena_alloc(&arena, t->n_bytes + 1);
    for (int64_t i = 0; i < rows * columns; i++) x[i] = noise(seed);
    apr_host_codecs()[dtype].encode(x, bytes, rows * columns);
    t->data = bytes;
    return t;
}

static float *values_of(const apr_tensor *t)
{
    float *const x = floats(apr_tensor_elems(t));
    apr_decode_rows(t, 0, apr_tensor_rows(t), x);
    return x;
}

typedef struct sizes {
    apr_dtype base, adapter;
    int64_t rows, columns, rank;
} sizes;

static const sizes shapes[] = {{APR_F32, APR_F32, 1, 1, 1},     {APR_F32, APR_F32, 37, 129, 4}, {APR_BF16, APR_F16, 33, 520, 16},
                               {APR_F16, APR_BF16, 5, 1030, 3}, {APR_Q8_0, APR_F32, 9, 64, 8},  {APR_Q6_K, APR_F32, 4, 512, 2},
                               {APR_MXFP4, APR_F32, 18, 96, 5}, {APR_F32, APR_F32, 16, 512, 64}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* A tensor with a merge in it, and all that it was made of. */
typedef struct merged {
    apr_tensor *base, *a, *b, *magnitudes, tensor;
    float scale;
} merged;

static void merge(merged *m, const sizes *s, bool has_magnitudes, uint32_t *seed)
{
    *m = (merged){.base = tensor_of(s->base, s->rows, s->columns, seed),
                  .a = tensor_of(s->adapter, s->rank, s->columns, seed),
                  .b = tensor_of(s->adapter, s->rows, s->rank, seed),
                  .magnitudes = has_magnitudes ? tensor_of(APR_F32, s->rows, 1, seed) : NULL,
                  .scale = 0.375f};
    const apr_merge how = {.base = m->base, .a = m->a, .b = m->b, .scale = m->scale, .magnitudes = m->magnitudes};
    m->tensor = *m->base;
    assert_int_equal(apr_tensor_merge(&m->tensor, m->base, &how, &arena, "test", NULL), APR_OK);
    assert_int_equal(m->tensor.dtype, APR_F32);
    assert_int_equal(m->tensor.n_bytes, (uint64_t)(s->rows * s->columns) * 4);
}

/* By definition, in double. `size`: the magnitudes of all that was added up, which rounding goes by. */
static double slow_value(const merged *m, const float *w, const float *a, const float *b, int64_t row, int64_t column, double *size)
{
    const int64_t columns = m->a->dims[1], rank = m->a->dims[0];
    double sum = 0.0;
    *size = fabs((double)w[row * columns + column]);
    for (int64_t k = 0; k < rank; k++) {
        const double product = (double)b[row * rank + k] * (double)a[k * columns + column];
        sum += product;
        *size += fabs((double)m->scale * product);
    }
    return (double)w[row * columns + column] + (double)m->scale * sum;
}

static void a_merge_is_what_a_double_loop_gives(void **state)
{
    uint32_t seed = 1;
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        merged m;
        const sizes *const s = &shapes[i / 2];
        merge(&m, s, i % 2 == 1, &seed);
        const float *const w = values_of(m.base), *const a = values_of(m.a), *const b = values_of(m.b), *const got = values_of(&m.tensor);
        for (int64_t r = 0; r < s->rows; r++) {
            double squares = 0.0, factor = 1.0, size;
            for (int64_t c = 0; c < s->columns; c++) {
                const double value = slow_value(&m, w, a, b, r, c, &size);
                squares += value * value;
            }
            if (m.magnitudes != NULL) factor = (double)values_of(m.magnitudes)[r] / sqrt(squares);
            for (int64_t c = 0; c < s->columns; c++) {
                const double value = slow_value(&m, w, a, b, r, c, &size) * factor;
                const double bound = fabs(factor) * size * (double)(s->rank + 4) * 0x1p-23;
                if (!(fabs((double)got[r * s->columns + c] - value) <= bound))
                    fail_msg("shape %d, [%d, %d]: %g instead of %g", i, (int)r, (int)c, (double)got[r * s->columns + c], value);
            }
        }
    }
}

/* Ranges that begin and end anywhere, whichever function is asked. */
static void any_piece_is_that_piece_of_the_whole(void **state)
{
    uint32_t seed = 2;
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        merged m;
        merge(&m, &shapes[i / 2], i % 2 == 1, &seed);
        const float *const whole = values_of(&m.tensor);
        const int64_t n = apr_tensor_elems(&m.tensor), columns = apr_tensor_columns(&m.tensor);
        for (int k = 0; k < 40; k++) {
            const int64_t first = (int64_t)(fabsf(noise(&seed)) / 2.0f * (float)n) % n, left = n - first;
            const int64_t length = 1 + (int64_t)(fabsf(noise(&seed)) / 2.0f * (float)left) % left;
            float *const piece = floats(length);
            uint8_t *const bytes = apr_arena_alloc(&arena, (size_t)length * 4 + 4);
            apr_decode_elements(&m.tensor, first, length, piece);
            assert_memory_equal(piece, whole + first, (size_t)length * 4);
            apr_read_bytes(&m.tensor, first, length, bytes + k % 4); /* as they would be stored in a file, at any address */
            assert_memory_equal(bytes + k % 4, whole + first, (size_t)length * 4);
        }
        float *const row = floats(columns);
        apr_decode_rows(&m.tensor, apr_tensor_rows(&m.tensor) - 1, 1, row);
        assert_memory_equal(row, whole + n - columns, (size_t)columns * 4);
    }
}

static void a_merge_on_a_merge_adds_to_it(void **state)
{
    const sizes s = {APR_F32, APR_F32, 20, 70, 3};
    uint32_t seed = 3;
    merged first, second;

    (void)state;
    merge(&first, &s, false, &seed);
    merge(&second, &s, false, &seed);
    const float *const plain = values_of(&second.tensor), *const below = values_of(second.base), *const ground = values_of(&first.tensor);
    const apr_merge how = {.base = &first.tensor, .a = second.a, .b = second.b, .scale = second.scale};
    apr_tensor both = first.tensor;
    assert_int_equal(apr_tensor_merge(&both, &first.tensor, &how, &arena, "test", NULL), APR_OK);
    const float *const got = values_of(&both);
    for (int64_t i = 0; i < apr_tensor_elems(&both); i++)
        assert_true(fabs((double)got[i] - ((double)ground[i] + (double)plain[i] - (double)below[i])) < 1e-5);
}

/* What follows it in a chain sees the values, under any number of steps, and a step undone gives the merged tensor again. */
static void steps_go_on_from_what_was_merged(void **state)
{
    static const char *const texts[] = {"halves_to_pairs:4", "transpose", "take:1,1,8,16 transpose", "unfold:1,4 transpose",
                                        "deinterleave:0,2 deinterleave:1,4 add:1 transpose unfold:1,2"};
    const sizes s = {APR_BF16, APR_F32, 32, 48, 3};
    uint32_t seed = 4;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        merged m;
        apr_chain chain, back;
        merge(&m, &s, i % 2 == 1, &seed);
        assert_true(apr_chain_parse(&chain, texts[i]));
        apr_tensor plain = m.tensor, moved = m.tensor;
        plain.data = (const uint8_t *)values_of(&m.tensor);
        plain.composed = NULL;
        assert_int_equal(apr_tensor_append_steps(&plain, &chain, &arena, "test", NULL), APR_OK);
        assert_int_equal(apr_tensor_append_steps(&moved, &chain, &arena, "test", NULL), APR_OK);
        assert_int_equal(moved.dtype, APR_F32);
        assert_memory_equal(values_of(&moved), values_of(&plain), plain.n_bytes);
        assert_int_equal(apr_default_type(&moved), APR_BF16);
        assert_ptr_equal(apr_merge_base(&moved), m.base);
        if (!apr_chain_inverse(&chain, &back)) continue;
        assert_int_equal(apr_tensor_append_steps(&moved, &back, &arena, "test", NULL), APR_OK);
        assert_memory_equal(values_of(&moved), values_of(&m.tensor), m.tensor.n_bytes);
    }
}

/* A base whose rows are stored in another order than they are used, as llama's do in a GGUF. */
static void a_base_with_a_pending_step_is_read_in_its_order(void **state)
{
    const sizes s = {APR_F16, APR_F32, 24, 40, 2};
    const apr_chain turn = apr_chain_of((apr_step){APR_STEP_PAIRS_TO_HALVES, {2}});
    uint32_t seed = 5;
    merged m;

    (void)state;
    merge(&m, &s, false, &seed);
    apr_tensor base = *m.base, settled = *m.base, a = base, b = base;
    assert_int_equal(apr_tensor_append_steps(&base, &turn, &arena, "test", NULL), APR_OK);
    assert_int_equal(base.pending.kind, APR_STEP_PAIRS_TO_HALVES);
    settled.dtype = APR_F32;
    settled.data = (const uint8_t *)values_of(&base);
    assert_int_equal(apr_tensor_size(&settled, "test", NULL), APR_OK);
    const apr_merge how = {.base = &base, .a = m.a, .b = m.b, .scale = m.scale};
    assert_int_equal(apr_tensor_merge(&a, &base, &how, &arena, "test", NULL), APR_OK);
    assert_int_equal(apr_tensor_merge(&b, &settled, &how, &arena, "test", NULL), APR_OK);
    assert_memory_equal(values_of(&a), values_of(&b), a.n_bytes);
    assert_int_equal(apr_default_type(&a), APR_F16);
}

static void a_merged_tensor_is_kept_in_its_bases_type_if_that_is_plain(void **state)
{
    static const struct {
        apr_dtype base, kept;
    } types[] = {{APR_F32, APR_F32}, {APR_F16, APR_F16}, {APR_BF16, APR_BF16}, {APR_Q8_0, APR_DTYPE_COUNT}, {APR_MXFP4, APR_DTYPE_COUNT}};
    uint32_t seed = 6;
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const sizes s = {types[i].base, APR_F32, 2, 64, 1};
        merged m;
        merge(&m, &s, false, &seed);
        assert_int_equal(apr_default_type(m.base), types[i].base);
        assert_null(apr_merge_base(m.base));
        assert_int_equal(apr_default_type(&m.tensor), types[i].kept);
    }
    const sizes s = {APR_BF16, APR_F32, 2, 64, 1}; /* of several tensors as one, by all of them */
    merged m, other;
    merge(&m, &s, false, &seed);
    merge(&other, &(sizes){APR_F16, APR_F32, 2, 64, 1}, false, &seed);
    const apr_chain stack = apr_chain_of((apr_step){.kind = APR_STEP_STACK});
    const apr_tensor *const alike[] = {m.base, &m.tensor, m.base}, *const unlike[] = {&m.tensor, &other.tensor};
    apr_tensor t = {.name = "stack"};
    assert_int_equal(apr_tensor_compose(&t, alike, 3, &stack, &arena, "test", NULL), APR_OK);
    assert_int_equal(apr_default_type(&t), APR_BF16);
    assert_memory_equal(values_of(&t) + 128, values_of(&m.tensor), m.tensor.n_bytes);
    t = (apr_tensor){.name = "stack"};
    assert_int_equal(apr_tensor_compose(&t, unlike, 2, &stack, &arena, "test", NULL), APR_OK);
    assert_int_equal(apr_default_type(&t), APR_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_merge_is_what_a_double_loop_gives),
        cmocka_unit_test(any_piece_is_that_piece_of_the_whole),
        cmocka_unit_test(a_merge_on_a_merge_adds_to_it),
        cmocka_unit_test(steps_go_on_from_what_was_merged),
        cmocka_unit_test(a_base_with_a_pending_step_is_read_in_its_order),
        cmocka_unit_test(a_merged_tensor_is_kept_in_its_bases_type_if_that_is_plain),
    };
    return cmocka_run_group_tests(tests, NULL, close_arena);
}
