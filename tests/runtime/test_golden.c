/* runtime/check/golden.h and the bounds of whole runs: recorded outputs are met in every grouping, and a wrong model is not taken for them.
 */
#include "formats/number/half.h"
#include "runtime/check/golden.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

#include <math.h>

static const char *const families[] = {"llama", "mistral", "qwen2", "qwen3"};
enum { N_FAMILIES = sizeof families / sizeof *families };

typedef struct subject {
    apr_model model;
    apr_golden_arrays arrays;
    apr_session *session;
} subject;

static void open_subject(subject *s, const char *family, const family_edit *edit, const apr_backend *backend, apr_dtype kv)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    char dir[64], path[128];

    snprintf(dir, sizeof dir, "tests/data/families/%s", family);
    if (family_write(dir, in_work(family), edit, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_model_open(&s->model, in_work(family), &err) != APR_OK) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/golden.safetensors", dir);
    if (apr_golden_open(&s->arrays, path, &err) != APR_OK) fail_msg("%s", err.text);
    options.n_ctx = apr_golden_context(&s->arrays);
    options.kv_dtype = kv;
    options.backend = backend;
    if (apr_session_open(&s->session, &s->model, &options, &err) != APR_OK) fail_msg("%s", err.text);
}

static void close_subject(subject *s)
{
    apr_session_close(s->session);
    apr_golden_close(&s->arrays);
    apr_model_close(&s->model);
}

typedef struct seen {
    int n, n_failed, of[4];
    double worst;        /* of the largest */
    double tightest;     /* worst share of a bound */
    double bound;        /* largest relative bound */
    bool rows_say_where; /* every failed figure names one */
} seen;

static apr_status see(void *user, const apr_golden_result *f, apr_error *err)
{
    seen *const s = user;
    (void)err;
    s->n++;
    s->of[f->what]++;
    s->n_failed += f->n_good != f->n_rows;
    s->worst = fmax(s->worst, f->worst / f->peak);
    s->tightest = fmax(s->tightest, f->worst / f->bound);
    s->bound = fmax(s->bound, f->reason.relative);
    s->rows_say_where &= (f->n_good != f->n_rows) == (f->first_bad[0] != '\0');
    return APR_OK;
}

static seen run(const char *family, const family_edit *edit, const apr_backend *backend, apr_dtype kv)
{
    seen s = {.rows_say_where = true};
    apr_error err = {0};
    subject on;

    open_subject(&on, family, edit, backend, kv);
    if (apr_golden_run(on.session, NULL, &on.arrays, 0.0, see, &s, &err) != APR_OK) fail_msg("%s", err.text);
    close_subject(&on);
    return s;
}

static void four_families_do_what_transformers_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const seen ref = run(families[i], NULL, &apr_ref_backend, APR_F32), host = run(families[i], NULL, NULL, APR_F32);
        print_message("%s: off by %.1e of the largest on ref, %.1e on host\n", families[i], ref.worst, host.worst);
        assert_int_equal(ref.n, 2 * 9 + 4); /* 1, 2, 3, 5, 8, 13, 21, 34, 48 at a time; two texts in turn, in two groupings */
        assert_true(ref.of[APR_GOLDEN_LOGITS] == 9 && ref.of[APR_GOLDEN_HIDDEN] == 9 && ref.of[APR_GOLDEN_SECOND] == 2 &&
                    ref.of[APR_GOLDEN_AGAIN] == 2);
        assert_true(ref.n_failed == 0 && ref.bound == 5e-5 && ref.worst < 5e-5);
        assert_true(host.n_failed == 0 && host.bound == 2e-4 && host.worst < 2e-4);
    }
}

/* --- bounds --- */

/* What tensor cores do to a prompt: inputs and weights rounded to FP16, sums in float32. */
static void linear_fp16(const apr_op_args *args)
{
    apr_op_args rounded = *args;
    const size_t n = (size_t)(args->linear.n_tokens * args->linear.n_in);
    float *const x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = apr_f16_to_f32(apr_f32_to_f16(args->linear.x[i]));
    rounded.linear.x = x;
    apr_ref_backend.ops[APR_OP_LINEAR](&rounded);
    free(x);
}

static void roundings_stay_within_the_bounds_that_name_them(void **state)
{
    apr_backend fp16 = apr_ref_backend;
    const apr_run_bound product = apr_run_bound_of((apr_run_facts){APR_RUNS_ON_DEVICE, .fp16_products = true, .kv_dtype = APR_F32});
    static const apr_dtype kv[] = {APR_F16, APR_F8_E4M3};

    (void)state;
    fp16.name = "fp16";
    fp16.ops[APR_OP_LINEAR] = linear_fp16;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const seen products = run(families[i], NULL, &fp16, APR_F32);
        print_message("%s: FP16 products off by %.1e of the largest", families[i], products.worst);
        assert_true(products.worst < product.relative);
        for (size_t k = 0; k < sizeof kv / sizeof *kv; k++) {
            const seen s = run(families[i], NULL, NULL, kv[k]);
            print_message(", keys and values in %s by %.1e", apr_dtypes[kv[k]].name, s.worst);
            assert_int_equal(s.n_failed, 0);
            assert_true(s.bound == apr_run_bound_of((apr_run_facts){APR_RUNS_ON_HOST, .kv_dtype = kv[k]}).relative);
        }
        print_message("\n");
    }
}

static void a_bound_is_that_of_the_coarsest_rounding(void **state)
{
    (void)state;
    static const struct {
        apr_run_facts facts;
        const char *reason;
    } cases[] = {
        {{APR_RUNS_ON_REF, .kv_dtype = APR_F32}, "float32 sums, one after the other"},
        {{APR_RUNS_ON_HOST, .kv_dtype = APR_F32}, "float32 sums in another order"},
        {{APR_RUNS_ON_DEVICE, .kv_dtype = APR_F32}, "float32 sums in another order"},
        {{APR_RUNS_ON_HOST, .kv_dtype = APR_F16}, "stored in FP16"},
        {{APR_RUNS_ON_DEVICE, .i16_products = true, .kv_dtype = APR_F32}, "15 bits"},
        {{APR_RUNS_ON_DEVICE, .i16_products = true, .fp16_products = true, .kv_dtype = APR_F32}, "round their inputs to FP16"},
        {{APR_RUNS_ON_DEVICE, .fp16_products = true, .kv_dtype = APR_F32}, "round their inputs to FP16"},
        {{APR_RUNS_ON_DEVICE, .fp16_products = true, .kv_dtype = APR_Q8_0}, "8 bits"},
        {{APR_RUNS_ON_DEVICE, .fp16_products = true, .kv_dtype = APR_F8_E4M3}, "stored in FP8"},
        {{APR_RUNS_ON_DEVICE, .fp16_products = true, .fp8_products = true, .kv_dtype = APR_F16}, "round their inputs to FP8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_run_bound b = apr_run_bound_of(cases[i].facts);
        assert_non_null(strstr(b.reason, cases[i].reason));
        assert_true(b.relative >= apr_run_bound_of((apr_run_facts){cases[i].facts.on, .kv_dtype = APR_F32}).relative);
        assert_true(b.relative <= 0.3);
        const double perplexity = apr_run_perplexity_bound(cases[i].facts);
        assert_true(perplexity >= 5e-4 && perplexity < 0.02 && (perplexity > 5e-4) == (b.relative > 1e-2));
    }
}

/* --- what is wrong is said --- */

static void leave_out_gains(void *user, const char *name, const int64_t *dims, int rank, float *values)
{
    (void)rank;
    if (strcmp(name, user) == 0)
        for (int64_t i = 0; i < dims[0]; i++) values[i] = 1.0f;
}

static void a_wrong_model_fails_in_every_grouping(void **state)
{
    (void)state;
    static char norm[] = "model.layers.3.post_attention_layernorm.weight";
    const family_edit edit = {leave_out_gains, norm};
    const seen s = run("qwen3", &edit, NULL, APR_F16), exact = run("qwen3", &edit, NULL, APR_F32);
    assert_true(s.n_failed == s.n && s.rows_say_where);
    assert_true(exact.n_failed == exact.n && exact.rows_say_where);
}

static void a_tolerance_that_is_given_is_absolute(void **state)
{
    (void)state;
    apr_golden_result f[2];
    subject s;

    open_subject(&s, "llama", NULL, NULL, APR_F16);
    assert_int_equal(apr_golden_compare(s.session, &s.arrays, 48, 1e-7, f, NULL), APR_OK);
    assert_true(f[0].bound == 1e-7 && f[0].reason.relative == 0.0 && f[0].n_good < f[0].n_rows && f[0].first_bad[0] != '\0');
    assert_int_equal(apr_golden_compare(s.session, &s.arrays, 48, 1.0, f, NULL), APR_OK);
    assert_true(f[0].n_good == 48 && f[1].n_good == 5 * 48);
    close_subject(&s);
}

/* Masked tokens are recorded as -inf. One of them made every bound infinite, and every model passed. */
static void an_infinite_number_is_met_by_itself_alone(void **state)
{
    (void)state;
    static char norm[] = "model.layers.3.post_attention_layernorm.weight";
    const family_edit edit = {leave_out_gains, norm};

    for (int is_wrong = 0; is_wrong < 2; is_wrong++) {
        apr_golden_result f[2];
        subject s;
        open_subject(&s, "llama", is_wrong ? &edit : NULL, NULL, APR_F32);
        s.arrays.logits[7 * s.arrays.vocab_size + 5] = -INFINITY;
        assert_int_equal(apr_golden_compare(s.session, &s.arrays, 48, 0.0, f, NULL), APR_OK);
        assert_true(isfinite(f[0].bound) && f[0].bound > 0 && isinf(f[0].worst));
        assert_int_equal(f[0].n_good, is_wrong ? 0 : f[0].n_rows - 1);
        if (!is_wrong) assert_string_equal(f[0].first_bad, "token 7");
        close_subject(&s);
    }
}

static void arrays_of_another_model_are_refused(void **state)
{
    (void)state;
    apr_golden_result f[2];
    apr_error err = {0};
    subject s;

    open_subject(&s, "llama", NULL, NULL, APR_F16);
    s.arrays.vocab_size--;
    assert_int_equal(apr_golden_compare(s.session, &s.arrays, 48, 0, f, &err), APR_E_NO);
    assert_non_null(strstr(err.text, "147 wide"));
    s.arrays.vocab_size++;
    s.arrays.n_taps--;
    assert_int_equal(apr_golden_run(s.session, NULL, &s.arrays, 0, see, &(seen){0}, NULL), APR_E_NO);
    s.arrays.n_taps++;
    close_subject(&s);
}

static apr_status open_arrays(const char *header, size_t n_data)
{
    uint8_t bytes[1024] = {0};
    const size_t n = strlen(header);
    apr_golden_arrays arrays;

    bytes[0] = (uint8_t)n;
    memcpy(bytes + 8, header, n);
    write_file(in_work("g.safetensors"), bytes, 8 + n + n_data);
    const apr_status status = apr_golden_open(&arrays, in_work("g.safetensors"), NULL);
    apr_golden_close(&arrays);
    return status;
}

static void arrays_that_do_not_go_together_are_damaged(void **state)
{
    (void)state;
#define IDS    "\"ids\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define LOGITS ",\"logits\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]}"
    assert_int_equal(open_arrays("{" IDS LOGITS "}", 24 + 8), APR_OK);
    assert_int_equal(open_arrays("{" IDS "}", 8), APR_E_DAMAGED); /* nothing to compare with */
    assert_int_equal(open_arrays("{\"logits\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24), APR_E_DAMAGED);
    assert_int_equal(open_arrays("{" IDS ",\"logits\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[8,32]}}", 32), APR_E_DAMAGED);
    assert_int_equal(open_arrays("{" IDS ",\"logits\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[8,20]}}", 20), APR_E_DAMAGED);
    assert_int_equal(open_arrays("{" IDS LOGITS ",\"ids2\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[32,36]}}", 36),
                     APR_E_DAMAGED);
    assert_int_equal(open_arrays("{" IDS LOGITS ",\"last2\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[32,48]}}", 48),
                     APR_E_DAMAGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_families_do_what_transformers_recorded), cmocka_unit_test(roundings_stay_within_the_bounds_that_name_them),
        cmocka_unit_test(a_bound_is_that_of_the_coarsest_rounding),    cmocka_unit_test(a_wrong_model_fails_in_every_grouping),
        cmocka_unit_test(a_tolerance_that_is_given_is_absolute),       cmocka_unit_test(an_infinite_number_is_met_by_itself_alone),
        cmocka_unit_test(arrays_of_another_model_are_refused),         cmocka_unit_test(arrays_that_do_not_go_together_are_damaged),
    };
    return cmocka_run_group_tests_name("golden", tests, make_work, remove_work);
}
