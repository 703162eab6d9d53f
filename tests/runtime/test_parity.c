/* runtime/check/parity.h and trace.h: backends agree operation by operation, and what is damaged is named, alone. */
#include "runtime/check/parity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char tiny[] = "tests/data/tiny-qwen2";

static void near(double found, double wanted)
{
    if (!(fabs(found - wanted) <= 1e-12)) fail_msg("%.17g is not %.17g", found, wanted);
}

static void differences_are_those_computed_by_hand(void **state)
{
    (void)state;
    const float reference[4] = {3, 4, 0, 2}, other[4] = {3, 5, 0, 2};
    const apr_difference d = apr_difference_of(reference, other, 2, 2);
    near(d.largest, 1.0);
    assert_int_equal(d.largest_at, 1);
    near(d.peak, 1.0 / sqrt(12.5)); /* the first row's root mean square */
    near(d.relative, 1.0 / sqrt(29.0));
    near(d.cosine, 33.0 / sqrt(29.0 * 38.0));
    assert_true(d.finite && d.crc_reference != d.crc_other);

    const apr_difference same = apr_difference_of(reference, reference, 2, 2);
    assert_true(same.cosine == 1.0 && same.largest == 0.0 && same.peak == 0.0 && same.relative == 0.0 &&
                same.crc_reference == same.crc_other);

    const float zeros[2] = {0, 0}, ones[2] = {1, 1}, bad[2] = {1, NAN};
    assert_true(isinf(apr_difference_of(zeros, ones, 1, 2).peak) && isinf(apr_difference_of(zeros, ones, 1, 2).relative));
    assert_true(apr_difference_of(zeros, zeros, 1, 2).cosine == 1.0);
    assert_false(apr_difference_of(ones, bad, 1, 2).finite);
    assert_int_equal(apr_difference_of(ones, bad, 1, 2).largest_at, 1);
    assert_false(apr_difference_of(bad, bad, 1, 2).finite);
}

/* --- two sessions --- */

typedef struct pair {
    apr_model a, b;
    apr_session *reference, *other;
    int32_t ids[200];
} pair;

static apr_session *open_session(const apr_model *model, const apr_backend *backend, int64_t n_ctx, apr_dtype kv_dtype)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_session *session;

    options.n_ctx = n_ctx;
    options.kv_dtype = kv_dtype;
    options.backend = backend;
    if (apr_session_open(&session, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return session;
}

/* Two views of the bundled model; the caller opens the sessions. */
static void open_pair(pair *p)
{
    *p = (pair){0};
    assert_int_equal(apr_model_open(&p->a, tiny, NULL), APR_OK);
    assert_int_equal(apr_model_open(&p->b, tiny, NULL), APR_OK);
    for (int i = 0; i < 200; i++) p->ids[i] = (i * 37 + 11) % 2000;
}

static void close_pair(pair *p)
{
    apr_session_close(p->reference);
    apr_session_close(p->other);
    apr_model_close(&p->a);
    apr_model_close(&p->b);
}

static apr_tensor *find(apr_model *model, const char *name)
{
    apr_tensor *const tensor = (apr_tensor *)(uintptr_t)apr_model_find(model, name);
    assert_non_null(tensor);
    return tensor;
}

static apr_parity_options all_of(const int64_t *positions, size_t n)
{
    return (apr_parity_options){
        .positions = positions, .n_positions = n, .n_batch = APR_PARITY_BATCH, .fp16_above = INT64_MAX, .layer = APR_PARITY_ALL_LAYERS};
}

typedef struct seen {
    int64_t n, n_failed, n_kv;
    size_t batch, n_batches; /* of the last operation */
    double peak[APR_OP_COUNT], relative[APR_OP_COUNT];
} seen;

static apr_status note(void *user, const apr_parity_record *r, apr_error *err)
{
    seen *const s = user;
    (void)err;
    s->n++;
    s->n_failed += !r->passed;
    assert_true(r->batch == s->batch || r->batch == s->batch + 1);
    s->batch = r->batch;
    s->n_batches = r->n_batches;
    s->n_kv += r->op->kind == APR_OP_KV_STORE && r->n_rows == r->n_tokens;
    s->peak[r->op->kind] = fmax(s->peak[r->op->kind], r->difference.peak);
    s->relative[r->op->kind] = fmax(s->relative[r->op->kind], r->difference.relative);
    return APR_OK;
}

static void the_host_does_what_the_reference_does_also_beyond_4000(void **state)
{
    (void)state;
    static const int64_t positions[] = {0, 4100, 9000}; /* the last does not fit */
    static const apr_dtype kv[] = {APR_F16, APR_F32, APR_Q8_0};
    for (size_t k = 0; k < sizeof kv / sizeof *kv; k++) {
        pair p;
        seen s = {0};
        apr_parity_result result;
        apr_parity_options options = all_of(positions, 3);

        open_pair(&p);
        p.reference = open_session(&p.a, &apr_ref_backend, 4117, kv[k]);
        p.other = open_session(&p.b, &apr_host_backend, 4117, kv[k]);
        options.on_record = note;
        options.user = &s;
        assert_int_equal(apr_parity_run(p.reference, p.other, p.ids, 200, &options, &result, NULL), APR_OK);
        for (int op = 0; op < APR_OP_COUNT; op++)
            if (s.peak[op] > 0.0)
                print_message("cache %s, %s: peak %.1e, relative %.1e\n", apr_dtypes[kv[k]].name, apr_op_name((apr_op_kind)op), s.peak[op],
                              s.relative[op]);
        assert_false(result.failed);
        assert_int_equal(result.n_positions, 2);
        assert_int_equal(result.last_position, 4116);
        assert_int_equal(s.n_batches, 4);
        assert_int_equal(s.batch, 3);
        assert_int_equal(result.n_checked, s.n);
        assert_int_equal(result.n_passed, s.n);
        assert_int_equal(s.n_kv, 2 * 2 * 2 * 2); /* keys and values of a store in each of two layers */
        assert_int_equal(s.n, 2 * 2 * (int64_t)apr_session_program(p.reference)->n_ops + s.n_kv / 2);
        assert_int_equal(apr_session_position(p.reference), 0);
        apr_parity_result_close(&result);
        close_pair(&p);
    }
}

/* One operation is damaged: every other one still agrees, since its input is the reference's. */
static void a_damaged_tensor_is_named_and_nothing_else(void **state)
{
    (void)state;
    static const int64_t positions[] = {0, 60};
    static const char *const names[] = {"model.layers.0.mlp.up_proj.weight", "model.layers.1.self_attn.k_proj.weight",
                                        "model.layers.1.post_attention_layernorm.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pair p;
        apr_parity_result result;
        seen s = {0};
        apr_parity_options options = all_of(positions, 2);

        open_pair(&p);
        apr_tensor *const damaged = find(&p.b, names[i]);
        uint8_t *const bytes = malloc(damaged->n_bytes);
        for (uint64_t b = 0; b < damaged->n_bytes; b++)
            bytes[b] = damaged->data[damaged->n_bytes - 2 + (b % 2) - (b & ~(uint64_t)1)]; /* bf16 backwards */
        damaged->data = bytes;
        p.reference = open_session(&p.a, &apr_ref_backend, 128, APR_F16);
        p.other = open_session(&p.b, &apr_host_backend, 128, APR_F16);
        options.on_record = note;
        options.user = &s;
        assert_int_equal(apr_parity_run(p.reference, p.other, p.ids, 200, &options, &result, NULL), APR_OK);
        assert_true(result.failed);
        assert_string_equal(result.first.name, names[i]);
        assert_int_equal(result.first.position, 0);
        assert_int_equal(result.first.layer, names[i][13] - '0');
        assert_true(result.first.difference.relative > 0.05);
        assert_int_equal(s.n_failed, 4); /* a batch and a token at two positions */
        assert_true(result.worst_relative[result.first.layer] > 0.05 && result.worst_relative[1 - result.first.layer] < 1e-4);
        apr_parity_result_close(&result);
        close_pair(&p);
        free(bytes);
    }
}

static void a_weight_of_another_type_may_have_that_types_error(void **state)
{
    (void)state;
    static const int64_t positions[] = {0};
    apr_weights weights;
    apr_parity_options options = all_of(positions, 1);
    apr_parity_result result;
    pair p;

    open_pair(&p);
    apr_tensor *const weight = find(&p.b, "model.layers.0.mlp.gate_proj.weight");
    const int64_t n = apr_tensor_elems(weight), n_bytes = apr_row_bytes(APR_Q8_0, n);
    float *const values = malloc((size_t)n * sizeof *values);
    uint8_t *const packed = malloc((size_t)n_bytes);
    apr_decode_rows(weight, 0, apr_tensor_rows(weight), values);
    apr_ref_codecs[APR_Q8_0].encode(values, packed, n);
    weight->dtype = APR_Q8_0;
    weight->data = packed;
    weight->n_bytes = (uint64_t)n_bytes;
    p.reference = open_session(&p.a, NULL, 64, APR_F16);
    p.other = open_session(&p.b, NULL, 64, APR_F16);
    assert_int_equal(apr_weights_compare(&weights, p.reference, p.other, 0, NULL, NULL), APR_OK);
    assert_true(weights.n_far == 0 && !weights.unchanged);
    options.weights = &weights;
    assert_int_equal(apr_parity_run(p.reference, p.other, p.ids, 200, &options, &result, NULL), APR_OK);
    assert_false(result.failed);
    assert_true(result.worst_relative[0] > 1e-3 && result.worst_relative[0] < 0.03 && result.worst_relative[1] == 0.0);
    apr_parity_result_close(&result);
    options.weights = NULL; /* as two backends it is a difference */
    assert_int_equal(apr_parity_run(p.reference, p.other, p.ids, 200, &options, &result, NULL), APR_OK);
    assert_true(result.failed);
    assert_string_equal(result.first.name, "model.layers.0.mlp.gate_proj.weight");
    apr_parity_result_close(&result);
    apr_weights_close(&weights);
    close_pair(&p);
    free(values);
    free(packed);
}

/* The head has 2,048 rows, so a sample may leave out three of four; smaller matrices are compared in full. */
static void a_sample_holds_some_rows_and_sees_what_is_not_finite_in_the_others(void **state)
{
    (void)state;
    static const int64_t positions[] = {0, 60};
    static const struct {
        double sample;
        int first, step; /* rows of the embedding, also the head, that are damaged */
        uint8_t byte;    /* the upper one of their bf16 numbers; 0: none is changed */
        bool found;
    } cases[] = {{1.0, 0, 1, 0, false}, {0.1, 0, 1, 0, false}, {0.1, 1, 2, 0x41, true}, {0.1, 2047, 4096, 0x7f, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair p;
        apr_parity_result result;
        apr_parity_options options = all_of(positions, 2);

        open_pair(&p);
        apr_tensor *const head = find(&p.b, "model.embed_tokens.weight");
        const int64_t columns = apr_tensor_columns(head);
        uint8_t *const bytes = malloc(head->n_bytes);
        memcpy(bytes, head->data, head->n_bytes);
        for (int64_t row = cases[i].first; cases[i].byte != 0 && row < apr_tensor_rows(head); row += cases[i].step)
            bytes[2 * row * columns + 1] = cases[i].byte, bytes[2 * row * columns] = 0xff;
        head->data = bytes;
        p.reference = open_session(&p.a, &apr_float64_backend, 128, APR_F16);
        p.other = open_session(&p.b, &apr_host_backend, 128, APR_F16);
        options.sample = cases[i].sample;
        options.op = "linear";
        assert_int_equal(apr_parity_run(p.reference, p.other, p.ids, 200, &options, &result, NULL), APR_OK);
        assert_true(result.failed == cases[i].found);
        if (cases[i].found) assert_string_equal(result.first.name, "model.embed_tokens.weight");
        if (cases[i].byte == 0x7f) assert_int_equal(result.first.difference.largest_at, 2047);
        assert_true(cases[i].sample == 1.0 ? result.share == 1.0 : result.share > 0.6 && result.share < 0.9);
        apr_parity_result_close(&result);
        close_pair(&p);
        free(bytes);
    }
}

static void one_layer_and_one_operation_can_be_asked_for(void **state)
{
    (void)state;
    static const int64_t positions[] = {0};
    static const struct {
        int layer;
        const char *op;
        int64_t n;
    } cases[] = {
        {1, "attend", 1},    {1, "linear", 7},  {APR_PARITY_ALL_LAYERS, "gated", 2},
        {0, "q.rotated", 1}, {0, "rotated", 2}, {-1, NULL, 4},
        {-1, "logits", 1},   {7, NULL, 0},      {0, "otated", 0},
    };
    pair p;

    open_pair(&p);
    p.reference = open_session(&p.a, &apr_ref_backend, 64, APR_F16);
    p.other = open_session(&p.b, &apr_host_backend, 64, APR_F16);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        apr_parity_options options = all_of(positions, 1);
        apr_parity_result result;
        apr_error err = {0};
        options.layer = cases[c].layer;
        options.op = cases[c].op;
        const apr_status status = apr_parity_run(p.reference, p.other, p.ids, 200, &options, &result, &err);
        assert_int_equal(status, cases[c].n > 0 ? APR_OK : APR_E_USAGE);
        assert_int_equal(result.n_checked, 2 * cases[c].n);
        assert_false(result.failed);
        apr_parity_result_close(&result);
    }
    close_pair(&p);
}

static void sessions_that_cannot_be_compared_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const int64_t positions[] = {0};
    const apr_parity_options options = all_of(positions, 1);
    apr_parity_result result;
    apr_error err = {0};
    pair p;

    open_pair(&p);
    p.reference = open_session(&p.a, NULL, 64, APR_F16);
    p.other = open_session(&p.b, NULL, 64, APR_F32);
    assert_int_equal(apr_parity_run(p.reference, p.other, p.ids, 200, &options, &result, &err), APR_E_USAGE);
    apr_parity_result_close(&result);
    assert_int_equal(apr_parity_run(p.reference, p.other, p.ids, 0, &options, &result, NULL), APR_E_USAGE);
    apr_parity_result_close(&result);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_are_those_computed_by_hand),
        cmocka_unit_test(the_host_does_what_the_reference_does_also_beyond_4000),
        cmocka_unit_test(a_damaged_tensor_is_named_and_nothing_else),
        cmocka_unit_test(a_weight_of_another_type_may_have_that_types_error),
        cmocka_unit_test(a_sample_holds_some_rows_and_sees_what_is_not_finite_in_the_others),
        cmocka_unit_test(one_layer_and_one_operation_can_be_asked_for),
        cmocka_unit_test(sessions_that_cannot_be_compared_are_refused_with_the_reason),
    };
    return cmocka_run_group_tests_name("parity", tests, NULL, NULL);
}
