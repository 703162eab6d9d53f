/* test_gather.c - tensors that are made of others: every step, chain and join against its definition on whole tensors. */

#include "formats/number/half.h"
#include "kernels/rows.h"
#include "tests/support/step_oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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

/* A tensor of random bytes, or of its own elements' numbers. */
static apr_tensor *tensor_of(const apr_shape *shape, bool numbered, uint32_t *seed)
{
    apr_tensor *const t = apr_arena_alloc(&arena, sizeof *t);
    assert_non_null(t);
    *t = (apr_tensor){.name = "t", .dtype = shape->dtype, .rank = shape->rank};
    memcpy(t->dims, shape->dims, sizeof t->dims);
    assert_int_equal(apr_tensor_size(t, "test", NULL), APR_OK);
    uint8_t *const bytes = apr_arena_alloc(&arena, t->n_bytes + 1);
    assert_non_null(bytes);
    for (uint64_t i = 0; i < t->n_bytes; i++) bytes[i] = (uint8_t)oracle_random(seed);
    for (uint32_t i = 0; numbered && i < t->n_bytes / 4; i++) memcpy(bytes + 4 * (size_t)i, &i, 4);
    t->data = bytes;
    return t;
}

static void follow(apr_tensor *t, const apr_chain *chain)
{
    apr_error err = {0};
    if (apr_tensor_append_steps(t, chain, &arena, "test", &err) != APR_OK) fail_msg("%s", err.text);
}

/* The bytes of a tensor in any of its three forms. */
static uint8_t *bytes_of(const apr_tensor *t)
{
    uint8_t *const bytes = apr_arena_alloc(&arena, t->n_bytes + 1);
    const int64_t n_rows = t->rank == 1 ? t->dims[0] : apr_tensor_rows(t);
    const size_t n_row = n_rows > 0 ? (size_t)(t->n_bytes / (uint64_t)n_rows) : 0;
    assert_non_null(bytes);
    if (t->composed != NULL) apr_read_bytes(t, 0, apr_tensor_elems(t), bytes);
    else if (t->pending.kind == APR_STEP_NONE) memcpy(bytes, t->data, t->n_bytes);
    else
        for (int64_t r = 0; r < n_rows; r++) memcpy(bytes + (size_t)r * n_row, apr_tensor_row(t, r), n_row);
    return bytes;
}

static bool moves_elements(apr_step_kind kind)
{
    const apr_reach reach = apr_step_kinds[kind].reach;
    return kind != APR_STEP_NONE && !apr_step_kinds[kind].of_several && reach != APR_REACH_VALUES && reach != APR_REACH_BITS;
}

static void every_step_moves_what_its_definition_says(void **state)
{
    uint32_t seed = 1, ids[ORACLE_MOST];
    (void)state;
    for (int kind = 0; kind < APR_STEP_COUNT; kind++)
        for (int i = 0; moves_elements((apr_step_kind)kind) && i < 40; i++) {
            apr_shape shape;
            const apr_step step = oracle_fitting_step((apr_step_kind)kind, APR_U32, 1, &shape, &seed);
            const apr_chain chain = apr_chain_of(step);
            const apr_tensor *const whole = tensor_of(&shape, true, &seed);
            apr_tensor t = *whole;
            follow(&t, &chain);
            memcpy(ids, whole->data, whole->n_bytes);
            oracle_apply(&step, &shape, ids);
            assert_int_equal(apr_tensor_elems(&t), oracle_elems(&shape));
            assert_memory_equal(bytes_of(&t), ids, t.n_bytes);
            const apr_step inverse = apr_step_inverse(step);
            if (inverse.kind == APR_STEP_NONE || kind == APR_STEP_CROP) continue; /* rows of noise are not copies of row 0 */
            apr_tensor moved = t, *const back = &moved;                           /* undone on its own bytes, not by cancelling */
            moved.data = bytes_of(&t);
            moved.composed = NULL;
            moved.pending = (apr_step){0};
            const apr_chain undo = apr_chain_of(inverse);
            follow(back, &undo);
            assert_int_equal(back->rank, whole->rank);
            assert_memory_equal(back->dims, whole->dims, (size_t)whole->rank * sizeof *whole->dims);
            assert_memory_equal(bytes_of(back), whole->data, whole->n_bytes);
        }
}

/* Blocks must stay whole: then each block after the steps is one before them. */
static void chains_move_whole_blocks(void **state)
{
    static const apr_dtype types[] = {APR_U32, APR_BF16, APR_U8, APR_F64, APR_Q8_0, APR_MXFP4, APR_F4};
    uint32_t seed = 2, ids[ORACLE_MOST];
    (void)state;
    for (int i = 0; i < 700; i++) {
        const apr_dtype dtype = types[i % 7];
        const int64_t elems = apr_dtypes[dtype].elems_per_block;
        const size_t n_block = (size_t)apr_dtypes[dtype].bytes_per_block;
        apr_shape shape;
        const apr_step first = oracle_fitting_step(APR_STEP_UNFOLD, dtype, elems, &shape, &seed);
        const apr_tensor *const whole = tensor_of(&shape, false, &seed);
        apr_tensor t = *whole;
        apr_chain chain = {0};
        for (uint32_t e = 0; e < oracle_elems(&shape); e++) ids[e] = e;
        for (apr_step step = first; chain.n_steps < 5;) {
            if (step.kind != APR_STEP_NONE && apr_chain_append(&chain, step)) oracle_apply(&step, &shape, ids);
            const apr_step_kind kind = (apr_step_kind)(oracle_random(&seed) % APR_STEP_COUNT);
            step = moves_elements(kind) ? oracle_step_for(kind, &shape, &seed) : (apr_step){0};
            if (oracle_random(&seed) % 4 == 0) break;
        }
        follow(&t, &chain);
        const uint8_t *const bytes = bytes_of(&t);
        for (int64_t e = 0; e < oracle_elems(&shape); e++) {
            assert_int_equal(ids[e] % elems, e % elems);
            if (e % elems == 0) assert_memory_equal(bytes + (size_t)(e / elems) * n_block, whole->data + ids[e] / elems * n_block, n_block);
        }
    }
}

static void any_range_is_that_part_of_the_whole(void **state)
{
    uint32_t seed = 3;
    (void)state;
    const apr_shape shape = {.dtype = APR_U32, .rank = 3, .dims = {5, 24, 18}};
    const char *const texts[] = {"transpose",
                                 "deinterleave:1,2 transpose take:1,3,1,4",
                                 "grouped_to_tiled:0,6,2,3",
                                 "take:1,4,1,2 transpose",
                                 "fold:1,5 pad:120,131",
                                 "fold:1,5 crop:110,120 transpose"};
    for (size_t c = 0; c < sizeof texts / sizeof *texts; c++) {
        apr_tensor t = *tensor_of(&shape, true, &seed);
        apr_chain chain;
        assert_true(apr_chain_parse(&chain, texts[c]));
        follow(&t, &chain);
        const uint8_t *const whole = bytes_of(&t);
        const int64_t n = apr_tensor_elems(&t);
        for (int i = 0; i < 300; i++) {
            const int64_t first = oracle_random(&seed) % n, count = oracle_random(&seed) % (n - first) + 1;
            uint8_t *const part = malloc((size_t)count * 4);
            apr_read_bytes(&t, first, count, part);
            assert_memory_equal(part, whole + 4 * first, (size_t)count * 4);
            free(part);
        }
    }
}

static void tensors_are_stacked_and_joined(void **state)
{
    uint32_t seed = 4;
    (void)state;
    for (int i = 0; i < 200; i++) {
        const bool stacks = i % 4 == 0, of_blocks = i % 3 == 0;
        const apr_dtype dtype = of_blocks ? APR_Q8_0 : APR_U32;
        const int rank = 2 + i % 2, n_parts = 1 + i % 5, axis = of_blocks ? 1 : (int)(oracle_random(&seed) % (unsigned)rank);
        const int32_t groups = 1 + (int32_t)(oracle_random(&seed) % 3);
        apr_step step = {APR_STEP_JOIN, {axis, groups}};
        apr_shape shapes[5];
        const apr_tensor *parts[5];
        for (int p = 0; p < n_parts; p++) {
            shapes[p] = (apr_shape){.dtype = dtype, .rank = rank, .dims = {4, 6, 5}};
            shapes[p].dims[rank - 1] = of_blocks ? 64 : 5;
            if (!stacks) shapes[p].dims[rank - 1 - axis] = groups * (1 + oracle_random(&seed) % 4);
            if (stacks) step = (apr_step){.kind = APR_STEP_STACK};
            parts[p] = tensor_of(&shapes[p], false, &seed);
        }
        apr_tensor t = {.name = "whole"};
        const apr_chain chain = apr_chain_of(step);
        assert_int_equal(apr_tensor_compose(&t, parts, (size_t)n_parts, &chain, &arena, "test", NULL), APR_OK);
        const uint8_t *const bytes = bytes_of(&t);
        const int64_t elems = apr_dtypes[dtype].elems_per_block;
        const size_t n_block = (size_t)apr_dtypes[dtype].bytes_per_block;
        if (stacks) assert_true(t.rank == rank + 1 && t.dims[0] == n_parts);
        for (int64_t e = 0; e < apr_tensor_elems(&t); e += elems) {
            size_t part = (size_t)(e / apr_tensor_elems(parts[0]));
            int64_t element = e % apr_tensor_elems(parts[0]);
            if (!stacks) oracle_join(&step, shapes, (size_t)n_parts, e, &part, &element);
            assert_memory_equal(bytes + (size_t)(e / elems) * n_block, parts[part]->data + (size_t)(element / elems) * n_block, n_block);
        }
    }
}

static void what_was_joined_goes_on_through_chains(void **state)
{
    uint32_t seed = 13, ids[ORACLE_MOST];
    (void)state;
    for (int i = 0; i < 500; i++) {
        const int axis = i % 3, n_parts = 1 + i % 4;
        const int32_t groups = 1 + (int32_t)(oracle_random(&seed) % 3);
        apr_shape shapes[4], shape;
        const apr_tensor *parts[4];
        for (int p = 0; p < n_parts; p++) {
            shapes[p] = (apr_shape){.dtype = APR_U16, .rank = 3, .dims = {4, 6, 8}};
            shapes[p].dims[2 - axis] = groups * (1 + oracle_random(&seed) % 4);
            parts[p] = tensor_of(&shapes[p], false, &seed);
        }
        apr_chain chain = apr_chain_of((apr_step){APR_STEP_JOIN, {axis, groups}});
        apr_tensor t = {.name = "whole"};
        assert_int_equal(apr_tensor_compose(&t, parts, (size_t)n_parts, &chain, &arena, "test", NULL), APR_OK);
        shape = apr_tensor_shape(&t);
        for (uint32_t e = 0; e < apr_tensor_elems(&t); e++) ids[e] = e;
        chain = (apr_chain){0};
        for (int k = 0; k < 12 && chain.n_steps < 5; k++) {
            const apr_step_kind kind = (apr_step_kind)(oracle_random(&seed) % APR_STEP_COUNT);
            const apr_step step = moves_elements(kind) ? oracle_step_for(kind, &shape, &seed) : (apr_step){0};
            if (step.kind == APR_STEP_NONE || !apr_chain_append(&chain, step)) continue;
            oracle_apply(&step, &shape, ids);
        }
        follow(&t, &chain);
        const uint8_t *const bytes = bytes_of(&t);
        for (int64_t e = 0; e < apr_tensor_elems(&t); e++) {
            size_t part;
            int64_t element;
            oracle_join(&(apr_step){APR_STEP_JOIN, {axis, groups}}, shapes, (size_t)n_parts, ids[e], &part, &element);
            assert_memory_equal(bytes + 2 * e, parts[part]->data + 2 * element, 2);
        }
    }
}

static void what_was_joined_can_be_taken_apart_again(void **state)
{
    (void)state;
    uint32_t seed = 5;
    const apr_shape q = {.dtype = APR_BF16, .rank = 2, .dims = {12, 7}}, k = {.dtype = APR_BF16, .rank = 2, .dims = {4, 7}};
    const apr_tensor *const parts[] = {tensor_of(&q, false, &seed), tensor_of(&k, false, &seed)};
    const apr_chain join = apr_chain_of((apr_step){APR_STEP_JOIN, {1, 4}}); /* by key head: three queries, a key */
    const apr_chain take[] = {apr_chain_of((apr_step){APR_STEP_TAKE, {1, 4, 0, 3}}), apr_chain_of((apr_step){APR_STEP_TAKE, {1, 4, 3, 1}})};
    for (int p = 0; p < 2; p++) {
        apr_tensor t = {.name = "whole"};
        assert_int_equal(apr_tensor_compose(&t, parts, 2, &join, &arena, "test", NULL), APR_OK);
        follow(&t, &take[p]);
        assert_int_equal(t.dims[0], parts[p]->dims[0]);
        assert_memory_equal(bytes_of(&t), parts[p]->data, parts[p]->n_bytes);
    }
}

static void a_contiguous_part_is_a_view(void **state)
{
    (void)state;
    uint32_t seed = 6;
    const apr_shape shape = {.dtype = APR_Q8_0, .rank = 3, .dims = {4, 6, 64}};
    const apr_tensor *const whole = tensor_of(&shape, false, &seed);
    apr_tensor expert = *whole, half;
    const apr_chain pick = apr_chain_of((apr_step){APR_STEP_PICK, {2}}), take = apr_chain_of((apr_step){APR_STEP_TAKE, {1, 1, 3, 3}});
    follow(&expert, &pick);
    assert_ptr_equal(expert.data, whole->data + whole->n_bytes / 2);
    assert_null(expert.composed);
    half = expert;
    follow(&half, &take);
    assert_ptr_equal(half.data, expert.data + expert.n_bytes / 2);
    half = *whole;
    follow(&half, &take); /* of every expert: in four pieces */
    assert_null(half.data);
    assert_non_null(half.composed);
}

static void a_chain_and_its_inverse_leave_the_tensor_unchanged(void **state)
{
    (void)state;
    uint32_t seed = 7;
    const apr_shape shape = {.dtype = APR_F8_E4M3, .rank = 2, .dims = {16, 8}}, one = {.dtype = APR_F32, .rank = 1, .dims = {1}};
    apr_tensor t = *tensor_of(&shape, false, &seed), before;
    t.scale = tensor_of(&one, false, &seed);
    t.scale_rows = 16, t.scale_columns = 8;
    before = t;
    apr_chain chain, back;
    assert_true(apr_chain_parse(&chain, "halves_to_pairs:2"));
    follow(&t, &chain);
    assert_int_equal(t.pending.kind, APR_STEP_HALVES_TO_PAIRS); /* kernels read these in place, scales included */
    assert_ptr_equal(t.data, before.data);
    assert_ptr_equal(t.scale, before.scale);
    assert_true(apr_chain_parse(&chain, "transpose unfold:1,4 add:1"));
    follow(&t, &chain);
    assert_non_null(t.composed);
    assert_int_equal(t.dtype, APR_F32);
    assert_true(apr_chain_inverse(&chain, &back));
    follow(&t, &back);
    assert_true(apr_chain_parse(&chain, "pairs_to_halves:2"));
    follow(&t, &chain);
    assert_ptr_equal(t.data, before.data);
    assert_ptr_equal(t.scale, before.scale);
    assert_null(t.composed);
    assert_int_equal(t.dtype, APR_F8_E4M3);
    assert_int_equal(t.n_bytes, before.n_bytes);
}

static void a_provenance_too_long_for_one_chain_continues_in_another(void **state)
{
    (void)state;
    uint32_t seed = 8, ids[ORACLE_MOST];
    apr_shape shape = {.dtype = APR_U32, .rank = 2, .dims = {12, 24}};
    const apr_tensor *const whole = tensor_of(&shape, true, &seed);
    apr_tensor t = *whole;
    memcpy(ids, whole->data, whole->n_bytes);
    for (int i = 0; i < 20; i++) {
        const apr_step step = i % 2 ? (apr_step){.kind = APR_STEP_TRANSPOSE} : (apr_step){APR_STEP_DEINTERLEAVE, {1, 2 + i % 3}};
        const apr_chain chain = apr_chain_of(step);
        follow(&t, &chain);
        oracle_apply(&step, &shape, ids);
    }
    assert_memory_equal(bytes_of(&t), ids, t.n_bytes);
}

static void experts_in_fp8_are_stacked_with_their_scales(void **state)
{
    (void)state;
    uint32_t seed = 9;
    const apr_shape shape = {.dtype = APR_F8_E4M3, .rank = 2, .dims = {6, 10}}, blocks = {.dtype = APR_F32, .rank = 2, .dims = {2, 3}};
    const apr_tensor *parts[3];
    float each[3][60], all[180];
    for (int p = 0; p < 3; p++) {
        apr_tensor *const t = tensor_of(&shape, false, &seed), *const scale = tensor_of(&blocks, false, &seed);
        for (int i = 0; i < 60; i++) ((uint8_t *)t->data)[i] &= 0x77; /* no NaN */
        for (int i = 0; i < 6; i++) apr_store_le32((uint8_t *)scale->data + 4 * i, apr_f32_bits(0.25f * (float)(1 + p + i)));
        t->scale = scale;
        t->scale_rows = 4, t->scale_columns = 4;
        parts[p] = t;
        apr_decode_rows(t, 0, 6, each[p]);
    }
    apr_tensor t = {.name = "experts"};
    apr_chain chain = apr_chain_of((apr_step){.kind = APR_STEP_STACK});
    assert_int_equal(apr_tensor_compose(&t, parts, 3, &chain, &arena, "test", NULL), APR_OK);
    assert_int_equal(t.dtype, APR_F32); /* no one type has them */
    apr_decode_rows(&t, 0, 18, all);
    assert_memory_equal(all, each, sizeof all);
    chain = apr_chain_of((apr_step){.kind = APR_STEP_TRANSPOSE});
    follow(&t, &chain);
    apr_read_bytes(&t, 0, 180, (uint8_t *)all);
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < 60; i++) assert_true(all[p * 60 + i % 10 * 6 + i / 10] == each[p][i]);
}

static void every_step_that_computes_changes_values_and_is_undone_by_its_inverse(void **state)
{
    static const float x[] = {-0.75f, -1.5f, -3.0f};
    int n_kinds = 0;
    (void)state;
    for (int kind = 0; kind < APR_STEP_COUNT; kind++) {
        if (apr_step_kinds[kind].reach != APR_REACH_VALUES) continue;
        const bool multiplies = kind == APR_STEP_MULTIPLY || kind == APR_STEP_DIVIDE;
        const apr_step step = {(apr_step_kind)kind,
                               {multiplies                              ? (int32_t)apr_f32_bits(0.7f)
                                : apr_step_kinds[kind].n_parameters > 0 ? 2
                                                                        : 0}};
        const apr_chain there = apr_chain_of(step), back = apr_chain_of(apr_step_inverse(step));
        float y[3], z[3];
        apr_tensor t = {.name = "x", .dtype = APR_F32, .rank = 1, .dims = {3}, .data = (const uint8_t *)x, .n_bytes = sizeof x};
        apr_tensor u = {.name = "y", .dtype = APR_F32, .rank = 1, .dims = {3}, .data = (const uint8_t *)y, .n_bytes = sizeof y};
        follow(&t, &there);
        apr_decode_elements(&t, 0, 3, y);
        follow(&u, &back);
        apr_decode_elements(&u, 0, 3, z);
        for (int i = 0; i < 3; i++) assert_true(y[i] != x[i] && fabsf(z[i] - x[i]) <= 1e-6f);
        n_kinds++;
    }
    assert_int_equal(n_kinds, 5);
}

static void values_are_computed_in_the_order_of_the_steps(void **state)
{
    (void)state;
    static const float logs[] = {-1.5f, 0.0f, 0.25f, 3.0f, -0.125f, 2.0f};
    const apr_tensor tensor = {
        .name = "a", .dtype = APR_F32, .rank = 1, .dims = {6}, .data = (const uint8_t *)logs, .n_bytes = sizeof logs};
    apr_tensor t = tensor;
    apr_chain chain;
    float decay[6], back[6];
    assert_true(apr_chain_parse(&chain, "grouped_to_tiled:0,0,2,3 negate_exp add:1"));
    follow(&t, &chain);
    apr_decode_elements(&t, 0, 6, decay);
    static const int tiled[] = {0, 3, 1, 4, 2, 5};
    for (int i = 0; i < 6; i++) assert_true(decay[i] == -(float)exp((double)logs[tiled[i]]) + 1.0f);
    apr_tensor there = {.name = "d", .dtype = APR_F32, .rank = 1, .dims = {6}, .data = (const uint8_t *)decay, .n_bytes = sizeof decay};
    apr_chain undo;
    assert_true(apr_chain_inverse(&chain, &undo));
    follow(&there, &undo);
    apr_decode_rows(&there, 0, 1, back);
    for (int i = 0; i < 6; i++) assert_true(fabsf(back[i] - logs[i]) <= 1e-6f * fmaxf(1.0f, fabsf(logs[i])) * 8.0f);
}

/* Rows of a matrix by different factors, read in pieces that begin and end anywhere. */
static void rows_are_multiplied_by_their_own_factors(void **state)
{
    static const float factors[] = {0.5f, 0.8f, 1.5f};
    static const int32_t firsts[] = {0, 2, 5}, counts[] = {2, 2, 1}; /* row 4 stays */
    float x[6 * 5], whole[6 * 5], piece[6 * 5];
    apr_chain chain = {0}, back;
    (void)state;
    for (int i = 0; i < 30; i++) x[i] = (float)(i + 1) * 0.37f;
    for (int i = 0; i < 3; i++)
        assert_true(apr_chain_append(&chain, (apr_step){APR_STEP_MULTIPLY, {(int32_t)apr_f32_bits(factors[i]), firsts[i], counts[i]}}));
    apr_tensor t = {.name = "x", .dtype = APR_F32, .rank = 2, .dims = {6, 5}, .data = (const uint8_t *)x, .n_bytes = sizeof x};
    follow(&t, &chain);
    apr_decode_elements(&t, 0, 30, whole);
    for (int i = 0; i < 30; i++) {
        const int row = i / 5;
        const float factor = row < 2 ? factors[0] : row < 4 ? factors[1] : row == 5 ? factors[2] : 1.0f;
        assert_true(whole[i] == x[i] * factor);
    }
    for (int first = 0; first < 30; first++)
        for (int n = 1; n <= 30 - first; n++) {
            apr_decode_elements(&t, first, n, piece);
            assert_memory_equal(piece, whole + first, (size_t)n * sizeof *piece);
        }
    assert_true(apr_chain_inverse(&chain, &back));
    apr_tensor u = {.name = "y", .dtype = APR_F32, .rank = 2, .dims = {6, 5}, .data = (const uint8_t *)whole, .n_bytes = sizeof whole};
    follow(&u, &back);
    apr_decode_elements(&u, 0, 30, piece);
    for (int i = 0; i < 30; i++) assert_true(fabsf(piece[i] - x[i]) <= 1e-6f * x[i]);
}

/* No factor that cannot be divided by, no rows that are not there, and nothing moves what was multiplied by rows. */
static void factors_that_do_not_fit_are_refused(void **state)
{
    static const char *const chains[] = {
        "multiply:0,0,0",           "multiply:2139095040,0,0",           "divide:2143289344,0,0",
        "multiply:1056964608,5,2",  "multiply:1056964608,1,0",           "multiply:1056964608,-1,2",
        "multiply:1056964608,0,-2", "multiply:1056964608,0,2 transpose", "divide:1056964608,0,2 take:1,1,1,3"};
    (void)state;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        float x[30] = {0};
        apr_chain chain;
        apr_tensor t = {.name = "x", .dtype = APR_F32, .rank = 2, .dims = {6, 5}, .data = (const uint8_t *)x, .n_bytes = sizeof x};
        assert_true(apr_chain_parse(&chain, chains[i]));
        assert_int_not_equal(apr_tensor_append_steps(&t, &chain, &arena, "a file", NULL), APR_OK);
    }
}

static void norms_in_bf16_gain_one_and_lose_it_again(void **state)
{
    (void)state;
    uint16_t norm[2048], back[2048];
    float values[2048];
    uint32_t seed = 10;
    for (int i = 0; i < 2048; i++) norm[i] = apr_f32_to_bf16((float)(oracle_random(&seed) % 4096) / 2048.0f - 1.0f);
    apr_tensor t = {.name = "n", .dtype = APR_BF16, .rank = 1, .dims = {2048}, .data = (const uint8_t *)norm, .n_bytes = sizeof norm};
    apr_chain chain = apr_chain_of((apr_step){APR_STEP_ADD, {1}});
    follow(&t, &chain);
    assert_int_equal(t.dtype, APR_F32);
    apr_decode_rows(&t, 0, 1, values);
    apr_tensor there = {
        .name = "n", .dtype = APR_F32, .rank = 1, .dims = {2048}, .data = (const uint8_t *)values, .n_bytes = sizeof values};
    chain = apr_chain_of((apr_step){APR_STEP_ADD, {-1}});
    follow(&there, &chain);
    apr_decode_elements(&there, 0, 2048, values);
    for (int i = 0; i < 2048; i++) back[i] = apr_f32_to_bf16(values[i]);
    assert_memory_equal(back, norm, sizeof norm);
}

/* Elements 2j and 2j + 1 of a checkpoint's block in byte j, a scale of two to the power of b - 127. */
static float element_of(const uint8_t *blocks, const uint8_t *scales, int64_t i)
{
    static const float numbers[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    const int code = blocks[i / 2] >> 4 * (i % 2) & 15;
    return ldexpf(code & 8 ? -numbers[code & 7] : numbers[code & 7], scales[i / 32] - 127);
}

static void blocks_and_scales_of_a_checkpoint_become_mxfp4(void **state)
{
    (void)state;
    uint32_t seed = 11;
    const apr_shape block_shape = {.dtype = APR_U8, .rank = 4, .dims = {2, 6, 3, 16}},
                    scale_shape = {.dtype = APR_U8, .rank = 3, .dims = {2, 6, 3}};
    const apr_tensor *const blocks = tensor_of(&block_shape, false, &seed), *const scales = tensor_of(&scale_shape, false, &seed);
    for (int i = 0; i < 36; i++) ((uint8_t *)scales->data)[i] = (uint8_t)(100 + scales->data[i] % 50);
    apr_tensor column = *scales, t = {.name = "experts"};
    apr_chain chain = apr_chain_of((apr_step){APR_STEP_UNSQUEEZE, {0}});
    follow(&column, &chain);
    assert_true(apr_chain_parse(&chain, "join:0,1 pack_mxfp4 deinterleave:1,2")); /* gate and up rows take turns in gpt-oss */
    const apr_tensor *const parts[] = {&column, blocks};
    assert_int_equal(apr_tensor_compose(&t, parts, 2, &chain, &arena, "test", NULL), APR_OK);
    assert_int_equal(t.dtype, APR_MXFP4);
    assert_true(t.rank == 3 && t.dims[0] == 2 && t.dims[1] == 6 && t.dims[2] == 96);

    float values[2 * 6 * 96];
    const uint8_t *const bytes = bytes_of(&t);
    apr_ref_codecs[APR_MXFP4].decode(bytes, values, 2 * 6 * 96);
    for (int64_t i = 0; i < 2 * 6 * 96; i++) {
        const int64_t row = i / 96 % 6, source = i / 576 * 6 + row % 3 * 2 + row / 3;
        assert_true(values[i] == element_of(blocks->data, scales->data, source * 96 + i % 96));
    }

    /* and back: rows interleaved, blocks unpacked, the column of scales and the rest separated */
    const apr_tensor written = {.name = "w", .dtype = APR_MXFP4, .rank = 3, .dims = {2, 6, 96}, .data = bytes, .n_bytes = t.n_bytes};
    apr_tensor again = written;
    assert_true(apr_chain_parse(&chain, "interleave:1,2 unpack_mxfp4 take:0,1,0,1 squeeze:0"));
    follow(&again, &chain);
    assert_true(again.rank == 3 && again.dims[2] == 3);
    assert_memory_equal(bytes_of(&again), scales->data, scales->n_bytes);
    again = written;
    assert_true(apr_chain_parse(&chain, "interleave:1,2 unpack_mxfp4 take:0,1,1,16"));
    follow(&again, &chain);
    assert_memory_equal(bytes_of(&again), blocks->data, blocks->n_bytes);
}

static void parts_that_do_not_fit_are_refused_by_name(void **state)
{
    (void)state;
    uint32_t seed = 12;
    const apr_shape shapes[] = {{.dtype = APR_F32, .rank = 2, .dims = {4, 6}},
                                {.dtype = APR_F32, .rank = 2, .dims = {5, 6}},
                                {.dtype = APR_F32, .rank = 2, .dims = {4, 7}}};
    static const struct {
        const char *chain;
        int other;
        apr_status status;
        const char *text;
    } cases[] = {
        {"stack", 1, APR_E_DAMAGED, "f.apr: tensor 'whole', f32 [4, 6]: the step 'stack' does not fit"},
        {"join:1,1", 2, APR_E_DAMAGED, "f.apr: tensor 'whole', f32 [4, 6]: the step 'join:1,1' does not fit"},
        {"join:1,2", 1, APR_E_DAMAGED, "f.apr: tensor 'whole', f32 [4, 6]: the step 'join:1,2' does not fit"},
        {"join:2,1", 0, APR_E_DAMAGED, "f.apr: tensor 'whole', f32 [4, 6]: the step 'join:2,1' does not fit"},
        {"join:1,1 fold:0,2", 0, APR_E_DAMAGED, "f.apr: tensor 'whole', f32 [8, 6]: the step 'fold:0,2' does not fit"},
        {"transpose", 0, APR_E_USAGE, "f.apr: tensor 'whole' has several parts and no step that joins them"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_tensor *const parts[] = {tensor_of(&shapes[0], false, &seed), tensor_of(&shapes[cases[i].other], false, &seed)};
        apr_tensor t = {.name = "whole"};
        apr_chain chain;
        apr_error err = {0};
        assert_true(apr_chain_parse(&chain, cases[i].chain));
        assert_int_equal(apr_tensor_compose(&t, parts, 2, &chain, &arena, "f.apr", &err), cases[i].status);
        assert_string_equal(err.text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_moves_what_its_definition_says),
        cmocka_unit_test(chains_move_whole_blocks),
        cmocka_unit_test(any_range_is_that_part_of_the_whole),
        cmocka_unit_test(tensors_are_stacked_and_joined),
        cmocka_unit_test(what_was_joined_goes_on_through_chains),
        cmocka_unit_test(what_was_joined_can_be_taken_apart_again),
        cmocka_unit_test(a_contiguous_part_is_a_view),
        cmocka_unit_test(a_chain_and_its_inverse_leave_the_tensor_unchanged),
        cmocka_unit_test(a_provenance_too_long_for_one_chain_continues_in_another),
        cmocka_unit_test(experts_in_fp8_are_stacked_with_their_scales),
        cmocka_unit_test(every_step_that_computes_changes_values_and_is_undone_by_its_inverse),
        cmocka_unit_test(values_are_computed_in_the_order_of_the_steps),
        cmocka_unit_test(rows_are_multiplied_by_their_own_factors),
        cmocka_unit_test(factors_that_do_not_fit_are_refused),
        cmocka_unit_test(norms_in_bf16_gain_one_and_lose_it_again),
        cmocka_unit_test(blocks_and_scales_of_a_checkpoint_become_mxfp4),
        cmocka_unit_test(parts_that_do_not_fit_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("gather", tests, NULL, close_arena);
}
