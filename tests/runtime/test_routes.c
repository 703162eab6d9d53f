/* runtime/check/routes.h, and the checks that rest on it: two experts that are nearly as good may change places, others may not. */
#include "convert/naming.h"
#include "runtime/check/routes.h"
#include "runtime/check/verify.h"
#include "tests/support/edited_model.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

/* Gaps of the host, in shares of the best score. */
static const double bound = 2e-4;
enum { N_IDS = 120, N_CTX = 64, WINDOW = 40, LAYER = 2 };
static const char router[] = "model.layers.2.mlp.router.weight", bias[] = "model.layers.2.mlp.router.bias";

/* In one layer experts 1 and 4 are wanted equally; which of them comes first, a rounding decides. */
typedef struct pair {
    apr_model source, canonical;
    edited_model reference, other;
    apr_session *a, *b;
    int32_t ids[N_IDS];
} pair;

static void make_equal(const apr_tensor *t, float *values, float first)
{
    if (t == NULL || (strcmp(t->name, router) != 0 && strcmp(t->name, bias) != 0)) return;
    const int64_t n = t->rank == 1 ? 1 : t->dims[1];
    memcpy(values + 4 * n, values + n, (size_t)n * sizeof *values);
    if (t->rank == 1) values[1] = values[4] = 0.25f, values[1] += first, values[4] -= first;
}

static void first_by_a_hair(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    make_equal(t, values, 0x1p-24f);
}

static void second_by_a_hair(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    make_equal(t, values, -0x1p-24f);
}

/* The router sends to expert 2 what is expert 5's. */
static void another_router(edited_model *m, const apr_tensor *t, float *values)
{
    first_by_a_hair(m, t, values);
    if (t == NULL || strcmp(t->name, router) != 0) return;
    for (int64_t i = 0; i < t->dims[1]; i++) {
        const float kept = values[2 * t->dims[1] + i];
        values[2 * t->dims[1] + i] = values[5 * t->dims[1] + i];
        values[5 * t->dims[1] + i] = kept;
    }
}

static void open_pair(pair *t, model_edit other)
{
    apr_error err = {0};

    *t = (pair){.a = NULL};
    if (family_write("tests/data/families/gpt_oss", in_work("gpt_oss"), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_model_open(&t->source, in_work("gpt_oss"), &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_canonical(&t->canonical, &t->source, &err) != APR_OK) fail_msg("%s", err.text);
    edited_model_open_with(&t->reference, &t->canonical, APR_F32, first_by_a_hair);
    edited_model_open_with(&t->other, &t->canonical, APR_F32, other);
    t->a = edited_model_session(&t->reference.model, N_CTX);
    t->b = edited_model_session(&t->other.model, N_CTX);
    for (int32_t i = 0; i < N_IDS; i++) t->ids[i] = (i * 37 + i * i) % 148;
}

static void close_pair(pair *t)
{
    apr_session_close(t->a);
    apr_session_close(t->b);
    edited_model_close(&t->reference);
    edited_model_close(&t->other);
    apr_model_close(&t->canonical);
    apr_model_close(&t->source);
}

/* The mean divergence; with a count, choices are held to the reference's. */
static double divergence_of(const pair *t, apr_route_count *count)
{
    apr_routes routes = {0};
    apr_divergence d;
    apr_error err = {0};

    if (count != NULL) assert_int_equal(apr_routes_compare_live(&routes, t->a, t->b, WINDOW, bound, &err), APR_OK);
    if (apr_compare_models(t->a, t->b, t->ids, N_IDS, WINDOW, NULL, NULL, &d, &err) != APR_OK) fail_msg("%s", err.text);
    if (count != NULL) *count = routes.count;
    apr_routes_compare_stop(t->a);
    apr_routes_compare_stop(t->b);
    apr_routes_close(&routes);
    const double mean = d.mean;
    apr_divergence_close(&d);
    return mean;
}

static void nearly_equal_experts_are_chosen_as_the_reference_chose(void **state)
{
    (void)state;
    apr_route_count count;
    pair t;

    open_pair(&t, second_by_a_hair);
    assert_true(apr_program_routes(apr_session_program(t.a)));
    const double held = divergence_of(&t, &count);
    assert_int_equal(count.n_choices, 4 * N_IDS); /* a layer and token each, window by window */
    assert_true(count.n_forced > 3 && count.n_wrong == 0);
    assert_true(held < 1e-9);
    assert_true(divergence_of(&t, NULL) > 1e-6); /* and it mattered */
    close_pair(&t);
}

static void a_clear_choice_that_differs_stays_an_error(void **state)
{
    (void)state;
    apr_route_count count;
    pair t;

    open_pair(&t, another_router);
    const double held = divergence_of(&t, &count);
    assert_true(count.n_wrong > 3 && count.first_layer == LAYER && count.first_gap > bound);
    assert_true(count.first_position >= 0 && count.first_position < WINDOW);
    assert_true(held > 1e-6);
    close_pair(&t);
}

/* --- operation by operation --- */

/* A backend that takes another expert last, where the gap is at most this. */
static float most;

static void route_otherwise(const apr_op_args *args)
{
    const apr_route_args *const a = &args->route;
    const int64_t n = a->shape.n_used, width = apr_route_row(n);

    apr_ref_backend.ops[APR_OP_ROUTE](args);
    for (int64_t t = 0; t < a->n_tokens; t++) {
        float *const row = a->out + t * width;
        if (row[2 * n] > most) continue;
        for (float e = 0.0f; e < (float)a->shape.n_experts; e += 1.0f) {
            bool chosen = false;
            for (int64_t k = 0; k < n; k++) chosen |= row[k] == e;
            if (chosen) continue;
            row[n - 1] = e;
            break;
        }
    }
}

static apr_parity_result parity_with(const pair *t, float largest_gap)
{
    static const int64_t positions[] = {0, 20, 40};
    const apr_parity_options asked = {
        .positions = positions, .n_positions = 3, .n_batch = APR_PARITY_BATCH, .fp16_above = INT64_MAX, .layer = APR_PARITY_ALL_LAYERS};
    apr_backend other = apr_ref_backend;
    apr_session_options options = apr_session_defaults;
    apr_parity_result result;
    apr_session *session;
    apr_error err = {0};

    most = largest_gap;
    other.ops[APR_OP_ROUTE] = route_otherwise;
    options.n_ctx = N_CTX;
    options.kv_dtype = APR_F32;
    options.backend = &other;
    if (apr_session_open(&session, &t->reference.model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_parity_run(t->a, session, t->ids, N_IDS, &asked, &result, &err) != APR_OK) fail_msg("%s", err.text);
    apr_session_close(session);
    return result;
}

static void parity_lets_a_close_choice_be_and_names_the_operation_of_a_clear_one(void **state)
{
    (void)state;
    pair t;

    open_pair(&t, first_by_a_hair);
    apr_parity_result r = parity_with(&t, 1e-6f); /* the two equal ones */
    assert_true(!r.failed && r.n_checked > 100 && r.n_passed == r.n_checked);
    apr_parity_result_close(&r);
    r = parity_with(&t, 1e-1f);
    assert_true(r.failed && r.first.kind == APR_OP_ROUTE && r.first.difference.relative > 0.1);
    assert_true(r.n_checked - r.n_passed <= 3 * 2 * 4); /* choices alone: what follows them begins with the reference's */
    apr_parity_result_close(&r);
    close_pair(&t);
}

/* --- a whole verification --- */

static apr_verify_report verify(const pair *t, apr_verify_input *input)
{
    static const apr_vocab none = {.n_tokens = 0};
    const apr_subject a = {.path = "truth", .vocab = &none, .session = t->a}, b = {.path = "other", .vocab = &none, .session = t->b};
    apr_verify_report r;
    apr_error err = {0};

    *input = (apr_verify_input){.reference = a,
                                .other = b,
                                .used = apr_session_used(t->b),
                                .window = WINDOW,
                                .n_answer = 4,
                                .control_limit = (uint64_t)1 << 30,
                                .no_backends = true};
    if (apr_verify_run(&r, input, &err) != APR_OK) fail_msg("%s", err.text);
    return r;
}

static const apr_verify_check *check_of(const apr_verify_report *r, apr_verify_kind kind)
{
    for (size_t i = 0; i < r->n_checks; i++)
        if (r->checks[i].kind == kind) return &r->checks[i];
    return NULL;
}

static void verify_does_not_take_a_near_tie_for_a_fault(void **state)
{
    (void)state;
    apr_verify_input input;
    pair t;

    open_pair(&t, second_by_a_hair);
    apr_verify_report r = verify(&t, &input);
    if (r.failed) fail_msg("check %d fails: %s %s", (int)apr_verify_first_failure(&r)->kind, r.tensors.far, r.operations.first.name);
    assert_true(!r.tensors.unchanged && r.texts[0].routes.n_forced > 0);
    assert_non_null(check_of(&r, APR_VERIFY_ROUTES));
    assert_int_equal(check_of(&r, APR_VERIFY_TOKENIZER)->verdict, APR_VERDICT_NOTED); /* bytes were the tokens of both */
    assert_null(check_of(&r, APR_VERIFY_STOP_IDS));
    assert_true(r.texts[0].d.n_rows > 2000 && r.n_answers > 0 && r.answers[0].reference[0] != '\0');
    apr_verify_close(&r);
    close_pair(&t);
}

static void verify_finds_a_router_that_sends_to_another_expert(void **state)
{
    (void)state;
    apr_verify_input input;
    pair t;

    open_pair(&t, another_router);
    apr_verify_report r = verify(&t, &input);
    assert_int_equal(apr_verify_first_failure(&r)->kind, APR_VERIFY_WEIGHTS);
    assert_non_null(strstr(r.tensors.far, router));
    assert_true(r.texts[0].routes.n_wrong > 0 && check_of(&r, APR_VERIFY_KL)->verdict == APR_VERDICT_FAIL);
    apr_verify_close(&r);
    close_pair(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearly_equal_experts_are_chosen_as_the_reference_chose),
        cmocka_unit_test(a_clear_choice_that_differs_stays_an_error),
        cmocka_unit_test(parity_lets_a_close_choice_be_and_names_the_operation_of_a_clear_one),
        cmocka_unit_test(verify_does_not_take_a_near_tie_for_a_fault),
        cmocka_unit_test(verify_finds_a_router_that_sends_to_another_expert),
    };
    return cmocka_run_group_tests_name("routes", tests, make_work, remove_work);
}
