/* test_step.c - the table of steps, and chains of them: shapes, composition, text. */
#include "formats/tensor/step.h"

#include "tests/support/step_oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static apr_chain chain_of(const char *text)
{
    apr_chain chain;
    if (!apr_chain_parse(&chain, text)) fail_msg("'%s' is not a chain", text);
    return chain;
}

static void every_kind_has_all_its_facts(void **state)
{
    (void)state;
    for (int kind = 0; kind < APR_STEP_COUNT; kind++) {
        const apr_step_facts *const facts = &apr_step_kinds[kind], *const inverse = &apr_step_kinds[facts->inverse];
        assert_non_null(facts->name);
        assert_non_null(facts->plan);
        assert_true(strspn(facts->name, "abcdefghijklmnopqrstuvwxyz_0123456789") == strlen(facts->name));
        assert_true(facts->n_parameters >= facts->has_axis && facts->n_parameters <= APR_STEP_PARAMETERS);
        for (int other = 0; other < kind; other++) assert_string_not_equal(facts->name, apr_step_kinds[other].name);
        if (kind == APR_STEP_NONE || facts->inverse == APR_STEP_NONE) continue;
        assert_int_equal(inverse->inverse, kind);
        assert_int_equal(inverse->n_parameters, facts->n_parameters);
        assert_int_equal(inverse->reach, facts->reach);
        assert_int_equal(inverse->has_axis, facts->has_axis);
        assert_false(facts->of_several);
    }
    assert_true(apr_step_kinds[APR_STEP_JOIN].of_several && apr_step_kinds[APR_STEP_STACK].of_several);
    const apr_chain computed = chain_of("negate_exp"), added = chain_of("add:1"), moved = chain_of("transpose");
    assert_false(apr_chain_exact(&computed) || apr_chain_exact(&added));
    assert_true(apr_chain_exact(&moved));
}

static void an_inverse_brings_every_shape_back(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int kind = APR_STEP_NONE + 1; kind < APR_STEP_COUNT; kind++) {
        if (apr_step_kinds[kind].inverse == APR_STEP_NONE) continue;
        for (int i = 0; i < 20; i++) {
            const apr_dtype dtype = apr_step_kinds[kind].takes != APR_DTYPE_COUNT ? apr_step_kinds[kind].takes : APR_F32;
            const int64_t columns = kind == APR_STEP_PACK_MXFP4 ? 17 : dtype == APR_MXFP4 ? 32 : 1;
            apr_shape shape = {.dtype = dtype, .rank = 2, .dims = {3, columns}}, after = shape;
            apr_step step = {.kind = (apr_step_kind)kind};
            if (columns == 1) step = oracle_fitting_step(step.kind, dtype, 1, &shape, &seed);
            apr_chain chain = apr_chain_of(step), back;
            int at;
            assert_true(apr_chain_inverse(&chain, &back));
            after = shape;
            assert_null(apr_chain_shape(&chain, &after, &at));
            assert_null(apr_chain_shape(&back, &after, &at));
            assert_int_equal(after.rank, shape.rank);
            assert_int_equal(after.dtype, shape.dtype);
            assert_memory_equal(after.dims, shape.dims, (size_t)shape.rank * sizeof *shape.dims);
        }
    }
}

static void shapes_change_as_the_steps_say(void **state)
{
    static const struct {
        const char *chain;
        apr_dtype dtype, dtype_after;
        int64_t dims[5], after[5]; /* ended by 0 */
    } cases[] = {
        {"transpose", APR_BF16, APR_BF16, {4, 3, 5}, {4, 5, 3}},
        {"pad:3,5", APR_BF16, APR_BF16, {3, 7}, {5, 7}},
        {"crop:3,5", APR_Q8_0, APR_Q8_0, {5, 64}, {3, 64}},
        {"squeeze:1", APR_F32, APR_F32, {12, 1, 4}, {12, 4}},
        {"unsqueeze:1", APR_F32, APR_F32, {12, 4}, {12, 1, 4}},
        {"unsqueeze:2", APR_F32, APR_F32, {12, 4}, {1, 12, 4}},
        {"take:1,1,0,6", APR_Q8_0, APR_Q8_0, {8, 12, 64}, {8, 6, 64}},
        {"take:1,2,1,4", APR_F32, APR_F32, {12, 5}, {8, 5}},
        {"pick:7", APR_Q4_K, APR_Q4_K, {8, 2, 256}, {2, 256}},
        {"deinterleave:1,2 take:1,1,6,6", APR_MXFP4, APR_MXFP4, {8, 12, 32}, {8, 6, 32}},
        {"take:1,4,0,3 unfold:1,4 transpose", APR_F32, APR_F32, {20, 6}, {4, 6, 3}}, /* kv_b: keys of four heads, transposed */
        {"fold:1,4", APR_F32, APR_F32, {4, 3, 6}, {12, 6}},
        {"add:1", APR_BF16, APR_F32, {9}, {9}},
        {"negate_exp", APR_F32, APR_F32, {9}, {9}},
        {"pack_mxfp4", APR_U8, APR_MXFP4, {2, 5, 3, 17}, {2, 5, 96}},
        {"unpack_mxfp4", APR_MXFP4, APR_U8, {5, 96}, {5, 3, 17}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_chain chain = chain_of(cases[i].chain);
        apr_shape shape = {.dtype = cases[i].dtype};
        int rank = 0, at;
        while (cases[i].dims[shape.rank] != 0) shape.dims[shape.rank] = cases[i].dims[shape.rank], shape.rank++;
        while (cases[i].after[rank] != 0) rank++;
        const char *const why = apr_chain_shape(&chain, &shape, &at);
        if (why != NULL) fail_msg("%s: step %d %s", cases[i].chain, at, why);
        assert_int_equal(shape.rank, rank);
        assert_int_equal(shape.dtype, cases[i].dtype_after);
        assert_memory_equal(shape.dims, cases[i].after, (size_t)rank * sizeof *shape.dims);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    static const struct {
        const char *chain;
        apr_dtype dtype;
        int64_t dims[4];
        const char *why;
    } cases[] = {
        {"pairs_to_halves:4", APR_F32, {12, 8}, "does not fit"},
        {"pairs_to_halves:0", APR_F32, {12, 8}, "does not fit"},
        {"deinterleave:1,5", APR_F32, {12, 8}, "does not fit"},
        {"deinterleave:2,2", APR_F32, {12, 8}, "does not fit"},
        {"grouped_to_tiled:1,13,1,1", APR_F32, {12, 8}, "does not fit"},
        {"squeeze:0", APR_F32, {12, 8}, "does not fit"},
        {"unsqueeze:3", APR_F32, {12, 8}, "does not fit"},
        {"take:1,1,8,5", APR_F32, {12, 8}, "does not fit"},
        {"take:1,1,8,0", APR_F32, {12, 8}, "does not fit"},
        {"pick:12", APR_F32, {12, 8}, "does not fit"},
        {"pad:11,13", APR_F32, {12, 8}, "does not fit"},
        {"pad:12,12", APR_F32, {12, 8}, "does not fit"},
        {"pad:12,14", APR_F32, {12}, "does not fit"},
        {"crop:11,13", APR_F32, {12, 8}, "does not fit"},
        {"crop:0,12", APR_F32, {12, 8}, "does not fit"},
        {"fold:0,3", APR_F32, {12, 8}, "does not fit"},
        {"add:1", APR_I32, {12}, "does not fit"},
        {"pack_mxfp4", APR_U8, {12, 16}, "does not fit"},
        {"transpose", APR_Q8_0, {64, 64}, "would break the blocks of its type"},
        {"take:0,1,16,32", APR_Q8_0, {2, 64}, "would break the blocks of its type"},
        {"unfold:0,4", APR_Q8_0, {2, 64}, "would break the blocks of its type"},
        {"tiled_to_grouped:0,0,2,2", APR_Q4_K, {2, 512}, "would break the blocks of its type"},
        {"deinterleave:1,2", APR_APR_Q4, {2, 64}, "would break the blocks of its type"},
        {"pack_mxfp4", APR_I8, {12, 17}, "does not work on this type"},
        {"transpose stack", APR_F32, {12, 8}, "takes several tensors, and can only come first"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_chain chain = chain_of(cases[i].chain);
        apr_shape shape = {.dtype = cases[i].dtype};
        int at;
        while (cases[i].dims[shape.rank] != 0) shape.dims[shape.rank] = cases[i].dims[shape.rank], shape.rank++;
        const char *const why = apr_chain_shape(&chain, &shape, &at);
        if (why == NULL) fail_msg("%s was taken", cases[i].chain);
        assert_string_equal(why, cases[i].why);
        assert_int_equal(at, chain.n_steps - 1);
    }
}

static void value_heads_in_wide_columns_keep_their_blocks(void **state)
{
    (void)state;
    const apr_step step = {APR_STEP_TILED_TO_GROUPED, {0, 0, 2, 3}};
    apr_shape shape = {.dtype = APR_Q8_0, .rank = 2, .dims = {5, 6 * 128}};
    apr_move move;
    assert_int_equal(apr_step_reach(&step), APR_REACH_ELEMENTS);
    assert_null(apr_step_plan(&step, &shape, &move)); /* heads of 128 are whole blocks of 32, */
    shape.dtype = APR_Q4_K;
    assert_non_null(apr_step_plan(&step, &shape, &move)); /* and no blocks of 256 */
    const apr_step rows = {APR_STEP_TILED_TO_GROUPED, {1, 0, 2, 3}};
    assert_int_equal(apr_step_reach(&rows), APR_REACH_ROWS);
}

/* For an imatrix and for error feedback: what a column is multiplied with is still one column. */
static void steps_of_rows_keep_the_columns(void **state)
{
    static const struct {
        apr_step step;
        bool keeps;
    } rows[] = {
        {{APR_STEP_HALVES_TO_PAIRS, {4}}, true},
        {{APR_STEP_PICK, {1}}, true},
        {{.kind = APR_STEP_STACK}, true},
        {{APR_STEP_TAKE, {1, 1, 0, 2}}, true},
        {{APR_STEP_TAKE, {0, 1, 0, 2}}, false},
        {{APR_STEP_JOIN, {1, 1}}, true},
        {{APR_STEP_INTERLEAVE, {0, 2}}, false},
        {{APR_STEP_UNFOLD, {1, 2}}, true},
        {{APR_STEP_UNFOLD, {0, 2}}, false},
        {{.kind = APR_STEP_TRANSPOSE}, false},
        {{APR_STEP_ADD, {1}}, false},
        {{.kind = APR_STEP_PACK_MXFP4}, false},
        {{APR_STEP_MULTIPLY, {1, 0, 4}}, true},
        {{APR_STEP_PART_TO_PAIRS, {2, 4}}, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_int_equal(apr_step_keeps_columns(&rows[i].step), rows[i].keeps);
}

static void a_step_and_its_inverse_cancel(void **state)
{
    (void)state;
    uint32_t seed = 3;
    for (int kind = APR_STEP_NONE + 1; kind < APR_STEP_COUNT; kind++) {
        const apr_step step = {(apr_step_kind)kind, {3, 5, 2, 7}}, inverse = apr_step_inverse(step);
        apr_chain chain = apr_chain_of((apr_step){APR_STEP_UNSQUEEZE, {0}});
        assert_true(apr_chain_append(&chain, step));
        assert_int_equal(chain.n_steps, 2);
        if (inverse.kind == APR_STEP_NONE) continue;
        assert_true(apr_chain_append(&chain, inverse));
        assert_int_equal(chain.n_steps, 1);
        apr_step other = inverse; /* only the very same one */
        other.n[0]++;
        assert_true(apr_chain_append(&chain, step) && apr_chain_append(&chain, other));
        assert_int_equal(chain.n_steps, apr_step_kinds[kind].n_parameters > 0 ? 3 : 1);
    }
    for (int i = 0; i < 100; i++) { /* a whole chain after its inverse leaves nothing */
        apr_chain chain = {0}, back;
        while (chain.n_steps < APR_CHAIN_STEPS) {
            const apr_step step = {(apr_step_kind)(oracle_random(&seed) % APR_STEP_COUNT), {1, 2, 3, 4}};
            if (apr_step_inverse(step).kind != APR_STEP_NONE) assert_true(apr_chain_append(&chain, step));
        }
        assert_true(apr_chain_inverse(&chain, &back));
        assert_true(apr_chain_extend(&chain, &back));
        assert_int_equal(chain.n_steps, 0);
    }
}

static void a_full_chain_refuses_a_step_and_is_unchanged(void **state)
{
    (void)state;
    apr_chain chain = {0}, before, more = chain_of("squeeze:1 add:2");
    for (int i = 0; i < APR_CHAIN_STEPS - 1; i++) assert_true(apr_chain_append(&chain, (apr_step){APR_STEP_UNSQUEEZE, {i}}));
    before = chain;
    assert_false(apr_chain_extend(&chain, &more));
    assert_true(apr_chain_equal(&chain, &before));
    assert_true(apr_chain_append(&chain, more.steps[0]));
    assert_false(apr_chain_append(&chain, more.steps[1]));
    assert_int_equal(chain.n_steps, APR_CHAIN_STEPS);
}

static void parts_and_wholes_have_no_inverse_alone(void **state)
{
    static const char *const chains[] = {"stack", "join:1,2 transpose", "transpose pick:3", "take:1,1,0,2"};
    (void)state;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        const apr_chain chain = chain_of(chains[i]);
        apr_chain back;
        assert_false(apr_chain_inverse(&chain, &back));
        assert_true(apr_chain_exact(&chain)); /* all the same, nothing is lost */
    }
    const apr_chain computed = chain_of("squeeze:0 negate_exp");
    assert_false(apr_chain_exact(&computed));
}

static void chains_are_printed_and_read(void **state)
{
    (void)state;
    static const char *const texts[] = {"pairs_to_halves:14", "halves_to_pairs:32", "add:-1", "transpose",
                                        "join:1,4 fold:1,2147483647 transpose negate_exp"};
    char text[APR_CHAIN_TEXT];
    uint32_t seed = 1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const apr_chain chain = chain_of(texts[i]);
        assert_string_equal(apr_chain_text(&chain, text), texts[i]);
    }
    for (int i = 0; i < 1000; i++) {
        apr_chain chain = {.n_steps = 1 + (int)(oracle_random(&seed) % APR_CHAIN_STEPS)}, again;
        for (int s = 0; s < chain.n_steps; s++) {
            chain.steps[s].kind = (apr_step_kind)(1 + oracle_random(&seed) % (APR_STEP_COUNT - 1));
            for (int p = 0; p < apr_step_kinds[chain.steps[s].kind].n_parameters; p++)
                chain.steps[s].n[p] = (int32_t)(oracle_random(&seed) << 8) / (1 << oracle_random(&seed) % 31);
            if (chain.steps[s].n[0] == INT32_MIN) chain.steps[s].n[0] = 0;
        }
        if (!apr_chain_parse(&again, apr_chain_text(&chain, text))) fail_msg("'%s' is not read", text);
        assert_true(apr_chain_equal(&chain, &again));
    }
    const apr_step longest = {APR_STEP_GROUPED_TO_TILED, {-2147483647, -2147483647, -2147483647, -2147483647}};
    apr_chain chain = {.n_steps = APR_CHAIN_STEPS}, again;
    for (int s = 0; s < APR_CHAIN_STEPS; s++) chain.steps[s] = longest;
    assert_true(apr_chain_parse(&again, apr_chain_text(&chain, text)));
    assert_true(apr_chain_equal(&chain, &again));
}

static void malformed_text_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        " ",
        "none",
        "Transpose",
        "transpose ",
        " transpose",
        "transpose:",
        "transpose:1",
        "transpose  fold:1,2",
        "pairs_to_halves",
        "add:",
        "add:+1",
        "add:-0",
        "add:01",
        "add:1.0",
        "add:1,2",
        "take:1,2,3",
        "take:1,2,3,4,5",
        "fold:1, 2",
        "add:2147483648",
        "add:-2147483648",
        "add:99999999999999999999",
        "add:1\n",
        "pick:0x1",
        "stackjoin:1,1",
        "transpose,transpose",
        "transpose transpose transpose transpose transpose transpose transpose",
    };
    apr_chain chain;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (apr_chain_parse(&chain, texts[i])) fail_msg("'%s' was read", texts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_all_its_facts),
        cmocka_unit_test(an_inverse_brings_every_shape_back),
        cmocka_unit_test(shapes_change_as_the_steps_say),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(value_heads_in_wide_columns_keep_their_blocks),
        cmocka_unit_test(a_step_and_its_inverse_cancel),
        cmocka_unit_test(a_full_chain_refuses_a_step_and_is_unchanged),
        cmocka_unit_test(steps_of_rows_keep_the_columns),
        cmocka_unit_test(parts_and_wholes_have_no_inverse_alone),
        cmocka_unit_test(chains_are_printed_and_read),
        cmocka_unit_test(malformed_text_is_refused),
    };
    return cmocka_run_group_tests_name("steps", tests, NULL, NULL);
}
