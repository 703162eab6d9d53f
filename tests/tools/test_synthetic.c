/* tools/run/synthetic.h: untrained weights of a real shape, in every type that aprquant writes. */
#include "quant/mixtures.h"
#include "tools/engine/bench/synthetic.h"

#include "kernels/rows.h"
#include "quant/recipe.h"
#include "runtime/program/program.h"
#include "runtime/session/session.h"
#include "tools/engine/plan/sizes.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char dense[] = "tests/data/tiny-qwen2/config.json", experts[] = "tests/data/families/qwen3_moe/config.json";
static const char shape[] = "tests/data/shapes/synthetic-660m.json";

static void make(apr_synthetic *s, const char *config, const char *mixture, bool shared)
{
    apr_error err = {0};
    if (apr_synthetic_open(s, config, mixture, shared, &err) != APR_OK || apr_synthetic_fill(s, 3, NULL, &err) != APR_OK)
        fail_msg("%s as %s: %s", config, mixture, err.text);
}

/* What aprplan says of the same question. */
static uint64_t bytes_planned(const char *config, const char *mixture)
{
    apr_model source, skeleton;
    apr_program program;
    uint64_t sum = 0;
    assert_int_equal(apr_model_open(&source, config, NULL), APR_OK);
    assert_int_equal(apr_program_emit(&program, &source.hparams, NULL), APR_OK);
    assert_int_equal(apr_skeleton_model(&skeleton, &program, &source, NULL), APR_OK);
    apr_weight_size *const sizes = calloc(program.n_weights, sizeof *sizes);
    assert_int_equal(apr_weight_sizes(&skeleton, &program, mixture, false, sizes, NULL), APR_OK);
    for (size_t i = 0; i < program.n_weights; i++) sum += sizes[i].bytes;
    free(sizes);
    apr_program_close(&program);
    apr_model_close(&skeleton);
    apr_model_close(&source);
    return sum;
}

static void every_type_has_the_bytes_that_are_planned_and_finite_numbers_of_a_usual_size(void **state)
{
    (void)state;
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++) {
        apr_synthetic s;
        make(&s, dense, m->name, false);
        assert_int_equal(s.weights_bytes, bytes_planned(dense, m->name));
        for (size_t i = 0; i < s.model.n_tensors; i++) {
            const apr_tensor *const t = &s.model.tensors[i];
            const int64_t n = apr_tensor_elems(t);
            const bool is_gain = strstr(t->name, "norm") != NULL, is_scale = strstr(t->name, "_scale") != NULL;
            float *const x = malloc((size_t)n * sizeof *x);
            double sum = 0.0, squares = 0.0;
            apr_decode_rows(t, 0, apr_tensor_rows(t), x);
            for (int64_t k = 0; k < n; k++) sum += (double)x[k], squares += (double)x[k] * (double)x[k];
            const double mean = sum / (double)n, deviation = sqrt(fmax(squares / (double)n - mean * mean, 0.0));
            free(x);
            if (is_scale) continue;
            if (!(fabs(mean - is_gain) < 0.01 && deviation > 0.01 && deviation < 0.03))
                fail_msg("%s as %s: mean %g, deviation %g", t->name, m->name, mean, deviation);
        }
        apr_synthetic_close(&s);
    }
}

static void a_session_runs_it_and_its_logits_are_numbers(void **state)
{
    (void)state;
    static const char *const mixtures[] = {"f32", "q4_k_m", "mxfp4", "fp8"};
    const int32_t ids[] = {1, 20, 300};
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        apr_synthetic s;
        apr_session *session;
        apr_error err = {0};
        make(&s, dense, mixtures[i], false);
        if (apr_session_open(&session, &s.model, &apr_session_defaults, &err) != APR_OK) fail_msg("%s: %s", mixtures[i], err.text);
        assert_int_equal(apr_session_eval(session, ids, 3, NULL, NULL), APR_OK);
        for (int64_t k = 0; k < 2048; k++) assert_true(isfinite(apr_session_logits(session)[k]));
        apr_session_close(session);
        apr_synthetic_close(&s);
    }
}

/* Whatever can be decoded can be measured. */
static void types_that_are_only_read_are_synthesised_as_well(void **state)
{
    const int32_t ids[] = {1, 20, 300};
    int n_types = 0;
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype_facts *const facts = &apr_dtypes[d];
        apr_synthetic s;
        apr_session *session;
        apr_error err = {0};
        int64_t n_such = 0;
        if (!apr_dtype_is_weights((apr_dtype)d) || facts->flat || !apr_can_decode((apr_dtype)d)) continue;
        const apr_mixture *const mixture = apr_mixture_find(facts->name); /* iq2_s, as a mixture, is mostly iq2_xs */
        if (mixture != NULL && mixture->base != (apr_dtype)d) continue;
        make(&s, dense, facts->name, false);
        for (size_t i = 0; i < s.model.n_tensors; i++) {
            const apr_tensor *const t = &s.model.tensors[i];
            const int64_t n = apr_tensor_elems(t);
            float *const x = malloc((size_t)n * sizeof *x);
            double squares = 0.0;
            if (t->dtype == (apr_dtype)d && strstr(t->name, "norm") == NULL && strstr(t->name, "_scale") == NULL) {
                n_such++;
                apr_decode_rows(t, 0, apr_tensor_rows(t), x);
                for (int64_t k = 0; k < n; k++) squares += (double)x[k] * (double)x[k];
                if (!(sqrt(squares / (double)n) > 0.008 && sqrt(squares / (double)n) < 0.05))
                    fail_msg("%s as %s: %g", t->name, facts->name, sqrt(squares / (double)n));
            }
            free(x);
        }
        if (n_such == 0) fail_msg("%s: no tensor has this type", facts->name);
        if (apr_session_open(&session, &s.model, &apr_session_defaults, &err) != APR_OK) fail_msg("%s: %s", facts->name, err.text);
        assert_int_equal(apr_session_eval(session, ids, 3, NULL, NULL), APR_OK);
        for (int64_t k = 0; k < 2048; k++) assert_true(isfinite(apr_session_logits(session)[k]));
        apr_session_close(session);
        apr_synthetic_close(&s);
        n_types++;
    }
    assert_true(n_types > 20);
}

static void the_seed_decides_and_the_threads_do_not(void **state)
{
    (void)state;
    apr_synthetic a, b, c;
    apr_error err = {0};
    const int n_threads = omp_get_max_threads();
    make(&a, dense, "q4_k_m", false);
    omp_set_num_threads(1);
    make(&b, dense, "q4_k_m", false);
    omp_set_num_threads(n_threads);
    assert_int_equal(apr_synthetic_open(&c, dense, "q4_k_m", false, &err), APR_OK);
    assert_int_equal(apr_synthetic_fill(&c, 4, NULL, &err), APR_OK);
    size_t n_other = 0;
    for (size_t i = 0; i < a.model.n_tensors; i++) {
        const apr_tensor *const t = &a.model.tensors[i];
        assert_memory_equal(t->data, b.model.tensors[i].data, t->n_bytes);
        n_other += memcmp(t->data, c.model.tensors[i].data, t->n_bytes) != 0;
    }
    assert_int_equal(n_other, a.model.n_tensors);
    apr_synthetic_close(&a);
    apr_synthetic_close(&b);
    apr_synthetic_close(&c);
}

static void rows_and_layers_differ(void **state)
{
    (void)state;
    apr_synthetic s;
    make(&s, dense, "q8_0", false);
    const apr_tensor *const first = apr_model_find(&s.model, "model.layers.0.mlp.up_proj.weight");
    const apr_tensor *const second = apr_model_find(&s.model, "model.layers.1.mlp.up_proj.weight");
    const size_t row = (size_t)(first->n_bytes / (uint64_t)apr_tensor_rows(first));
    assert_memory_not_equal(first->data, second->data, first->n_bytes);
    for (int64_t r = 1; r < apr_tensor_rows(first); r++) assert_memory_not_equal(first->data, first->data + (size_t)r * row, row);
    apr_synthetic_close(&s);
}

static void each_expert_has_tensors_of_its_own(void **state)
{
    (void)state;
    apr_synthetic s;
    make(&s, experts, "q8_0", false);
    assert_int_equal(s.weights_bytes, bytes_planned(experts, "q8_0"));
    const apr_tensor *const one = apr_model_find(&s.model, "model.layers.0.mlp.experts.0.up_proj.weight");
    const apr_tensor *const other = apr_model_find(&s.model, "model.layers.0.mlp.experts.1.up_proj.weight");
    assert_true(one != NULL && other != NULL && one->data != other->data);
    assert_memory_not_equal(one->data, other->data, one->n_bytes);
    apr_synthetic_close(&s);
}

/* For a device, which copies them one by one. */
static void shared_memory_is_that_of_the_largest_tensor_of_each_type(void **state)
{
    (void)state;
    apr_synthetic s;
    uint64_t largest[APR_DTYPE_COUNT] = {0}, sum = 0;
    make(&s, shape, "mxfp4", true);
    assert_int_equal(s.weights_bytes, bytes_planned(shape, "mxfp4"));
    for (size_t i = 0; i < s.model.n_tensors; i++) {
        const apr_tensor *const t = &s.model.tensors[i];
        assert_true(t->data >= s.memory && t->data + t->n_bytes <= s.memory + s.memory_bytes);
        if (t->n_bytes > largest[t->dtype]) largest[t->dtype] = t->n_bytes;
    }
    for (int d = 0; d < APR_DTYPE_COUNT; d++) sum += largest[d];
    assert_true(s.memory_bytes >= sum && s.memory_bytes < sum + (2 << 20));
    assert_true(s.memory_bytes < s.weights_bytes / 5);
    for (size_t i = 0; i < s.model.n_tensors; i += 11) { /* and blocks begin where they should */
        const apr_tensor *const t = &s.model.tensors[i];
        float *const x = malloc((size_t)apr_tensor_columns(t) * sizeof *x);
        apr_decode_rows(t, 0, 1, x);
        for (int64_t n = 0; n < apr_tensor_columns(t); n++) assert_true(fabsf(x[n]) < 1.2f);
        free(x);
    }
    apr_synthetic_close(&s);
}

static void what_cannot_be_made_is_refused(void **state)
{
    (void)state;
    apr_synthetic s;
    apr_error err = {0};
    assert_int_equal(apr_synthetic_open(&s, dense, "q2_m", false, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "q2_m"));
    apr_synthetic_close(&s);
    assert_int_equal(apr_synthetic_open(&s, "tests/data/heldout.txt", "q8_0", false, NULL), APR_E_DAMAGED);
    apr_synthetic_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_the_bytes_that_are_planned_and_finite_numbers_of_a_usual_size),
        cmocka_unit_test(a_session_runs_it_and_its_logits_are_numbers),
        cmocka_unit_test(types_that_are_only_read_are_synthesised_as_well),
        cmocka_unit_test(the_seed_decides_and_the_threads_do_not),
        cmocka_unit_test(rows_and_layers_differ),
        cmocka_unit_test(each_expert_has_tensors_of_its_own),
        cmocka_unit_test(shared_memory_is_that_of_the_largest_tensor_of_each_type),
        cmocka_unit_test(what_cannot_be_made_is_refused),
    };
    return cmocka_run_group_tests_name("synthetic", tests, NULL, NULL);
}
