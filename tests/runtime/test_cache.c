/* tests/support/cache_bounds.h on the host: keys and values in every type cost what the type's rounding costs, and a cache that is broken
 * in any of many ways costs more. The tests on a GPU rely on the same bounds. */
#include "formats/number/half.h"
#include "kernels/rows.h"
#include "runtime/session/session.h"
#include "tests/support/cache_bounds.h"
#include "tests/support/golden_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 64 };

/* --- faults: what reaches the cache instead of the keys and values --- */

typedef void (*fault_fn)(float *x, int64_t n, int64_t head_dim);

static void none(float *x, int64_t n, int64_t head_dim) { (void)x, (void)n, (void)head_dim; }

static void mantissas_cut_off(float *x, int64_t n, int64_t head_dim)
{
    (void)head_dim;
    for (int64_t i = 0; i < n; i++) x[i] = apr_f32_from_bits(apr_f32_bits(x[i]) & 0xfff00000u);
}

static void one_bit_less(float *x, int64_t n, int64_t head_dim)
{
    (void)head_dim;
    for (int64_t i = 0; i < n; i++) x[i] = apr_e5m2_to_f32(apr_f32_to_e5m2(x[i]));
}

static void last_of_a_head_missing(float *x, int64_t n, int64_t head_dim)
{
    for (int64_t i = head_dim - 1; i < n; i += head_dim) x[i] = 0.0f;
}

static void half_a_step_too_large(float *x, int64_t n, int64_t head_dim)
{
    (void)head_dim;
    for (int64_t i = 0; i < n; i++) x[i] *= 1.0625f;
}

static void one_place_off(float *x, int64_t n, int64_t head_dim)
{
    (void)head_dim;
    const float first = x[0];
    memmove(x, x + 1, (size_t)(n - 1) * sizeof *x);
    x[n - 1] = first;
}

static void neighbours_swapped(float *x, int64_t n, int64_t head_dim)
{
    (void)head_dim;
    for (int64_t i = 0; i + 1 < n; i += 2) {
        const float even = x[i];
        x[i] = x[i + 1];
        x[i + 1] = even;
    }
}

static void saturated_too_early(float *x, int64_t n, int64_t head_dim)
{
    (void)head_dim;
    for (int64_t i = 0; i < n; i++) x[i] = fminf(fmaxf(x[i], -1.0f), 1.0f);
}

static fault_fn fault;

static void store_with_fault(const apr_op_args *args)
{
    apr_op_args faulty = *args;
    apr_kv_store_args *const a = &faulty.kv_store;
    const int64_t n = a->n_tokens * a->n_kv_heads * a->key_dim;
    float *const k = malloc((size_t)n * sizeof *k), *const v = malloc((size_t)n * sizeof *v);

    memcpy(k, a->k, (size_t)n * sizeof *k);
    memcpy(v, a->v, (size_t)n * sizeof *v);
    fault(k, n, a->key_dim);
    fault(v, n, a->key_dim);
    a->k = k;
    a->v = v;
    apr_host_backend.ops[APR_OP_KV_STORE](&faulty);
    free(k);
    free(v);
}

/* --- */

/* How far the logits of the golden text are from the golden ones, as vectors. -1: heads that the type does not take. */
static double distance_with(const golden *g, apr_dtype dtype)
{
    apr_backend backend = apr_host_backend;
    apr_session_options options = apr_session_defaults;
    const size_t n = N_TOKENS * (size_t)g->model.hparams.vocab_size;
    int32_t ids[N_TOKENS];
    apr_error err = {0};
    apr_session *s;

    if (apr_kv_row_bytes(dtype, g->model.hparams.head_dim) < 0) return -1.0;
    backend.ops[APR_OP_KV_STORE] = store_with_fault;
    options.backend = &backend;
    options.kv_dtype = dtype;
    assert_true(golden_text(g, ids, N_TOKENS));
    float *const logits = malloc(n * sizeof *logits);
    const apr_eval_output out = {.all_logits = true, .logits = logits};
    if (apr_session_open(&s, &g->model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(apr_session_eval(s, ids, N_TOKENS, &out, &err), APR_OK);
    const double distance = relative_distance(logits, golden_floats(g, "logits", (int64_t)n), n);
    apr_session_close(s);
    free(logits);
    return distance;
}

static const char *const models[] = {"tests/data/tiny-qwen2", "tests/data/tiny-llama"};
static const apr_dtype dtypes[] = {APR_F32, APR_F16, APR_Q8_0, APR_F8_E4M3};

static void a_cache_costs_what_its_type_rounds(void **state)
{
    (void)state;
    fault = none;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        golden g;
        apr_error err = {0};
        if (golden_open(&g, models[m], &err) != APR_OK) fail_msg("%s", err.text);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const double distance = distance_with(&g, dtypes[d]), roundoff = cache_roundoff(dtypes[d]);
            if (distance < 0.0) continue;
            print_message("%s, cache %-4s: logits move by %.2e, its rounding is %.2e\n", models[m], apr_dtypes[dtypes[d]].name, distance,
                          roundoff);
            assert_true(distance <= 1.5 * roundoff);
            assert_true(dtypes[d] == APR_F32 || distance >= 0.5 * roundoff);
        }
        golden_close(&g);
    }
}

static void a_broken_cache_costs_more(void **state)
{
    static const struct {
        fault_fn of;
        const char *name;
    } faults[] = {{mantissas_cut_off, "mantissas cut off"},
                  {one_bit_less, "a bit less of mantissa"},
                  {last_of_a_head_missing, "each head's last number missing"},
                  {half_a_step_too_large, "half a step too large"},
                  {one_place_off, "one place off"},
                  {neighbours_swapped, "neighbours swapped"},
                  {saturated_too_early, "saturated too early"}};
    golden g;
    apr_error err = {0};
    (void)state;
    if (golden_open(&g, models[0], &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            fault = faults[f].of;
            const double distance = distance_with(&g, dtypes[d]), roundoff = cache_roundoff(dtypes[d]);
            if (dtypes[d] == APR_F8_E4M3) print_message("fp8, %s: %.2e, bound %.2e\n", faults[f].name, distance, 1.5 * roundoff);
            assert_true(distance > 1.5 * roundoff);
        }
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_costs_what_its_type_rounds),
        cmocka_unit_test(a_broken_cache_costs_more),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
