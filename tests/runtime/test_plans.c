/* runtime/plan/plans.h: the places' plans are shares of one, and the smallest offload is the smallest. */
#include "runtime/plan/plans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct asked {
    apr_model model;
    apr_program program;
    uint64_t *bytes;
    apr_plans_options options;
} asked;

static void ask(asked *a, const char *name, uint64_t budget)
{
    apr_error err = {0};
    char path[128];

    snprintf(path, sizeof path, "tests/data/shapes/%s.json", name);
    if (apr_model_open(&a->model, path, &err) != APR_OK || apr_program_emit(&a->program, &a->model.hparams, &err) != APR_OK)
        fail_msg("%s: %s", name, err.text);
    a->bytes = calloc(a->program.n_weights + 1, sizeof *a->bytes);
    assert_non_null(a->bytes);
    for (size_t i = 0; i < a->program.n_weights; i++)
        a->bytes[i] = a->program.weights[i].optional ? 0 : apr_plan_slot_bytes(&a->program.weights[i], APR_F16);
    a->options = (apr_plans_options){.each = apr_plan_defaults, .n_devices = 1, .host_weight_bytes = a->bytes};
    a->options.each.gpu = apr_gpu_find("h100");
    a->options.each.budget_bytes = budget;
    a->options.each.weight_bytes = a->bytes;
}

static void forget(asked *a)
{
    free(a->bytes);
    apr_program_close(&a->program);
    apr_model_close(&a->model);
}

static bool fits_with(const asked *a, apr_offload offload)
{
    apr_plans_options options = a->options;
    apr_plans plans;
    options.offload = offload;
    assert_int_equal(apr_plans_make(&plans, &a->program, &options, NULL), APR_OK);
    const bool fits = apr_plans_fit(&plans);
    apr_plans_close(&plans);
    return fits;
}

static void one_layer_fewer_does_not_fit(void **state)
{
    static const char *const names[] = {"llama-3.1-8b", "qwen2.5-32b", "qwen3.5-27b", "gemma-4-e2b", "gemma-4-31b"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint64_t gib = 4; gib <= 12; gib += 4)
            for (int n_devices = 1; n_devices <= 3; n_devices += 2) {
                asked a;
                apr_offload smallest;
                apr_plans plans;
                ask(&a, names[i], gib << 30);
                a.options.n_devices = n_devices;
                const bool fits_whole = fits_with(&a, (apr_offload){0});
                if (!fits_whole && apr_plans_smallest(&plans, &smallest, &a.program, &a.options, NULL) == APR_OK) {
                    assert_true(apr_plans_fit(&plans) && smallest.n_layers >= 1 && !smallest.experts);
                    if (fits_with(&a, (apr_offload){.n_layers = smallest.n_layers - 1}))
                        fail_msg("%s: one layer fewer than %lld fits %llu GiB", names[i], (long long)smallest.n_layers,
                                 (unsigned long long)gib);
                    apr_plans_close(&plans);
                }
                forget(&a);
            }
}

static void experts_go_first(void **state)
{
    (void)state;
    asked a;
    apr_offload smallest;
    apr_plans plans;
    ask(&a, "qwen3-30b-a3b", (uint64_t)12 << 30);
    assert_int_equal(apr_plans_smallest(&plans, &smallest, &a.program, &a.options, NULL), APR_OK);
    assert_true(smallest.experts && smallest.n_layers == 0);
    apr_plans_close(&plans);
    a.options.host_budget_bytes = (uint64_t)32 << 30; /* 54 GiB of experts do not fit there */
    assert_int_equal(apr_plans_smallest(&plans, &smallest, &a.program, &a.options, NULL), APR_E_NO);
    assert_true(plans.plans == NULL);
    forget(&a);
}

static uint64_t sum_of(const apr_plans *plans, apr_line_id first, apr_line_id last)
{
    uint64_t sum = 0;
    for (int k = 0; k < plans->partition.n_places; k++)
        for (size_t i = 0; i < plans->plans[k].n_lines; i++) {
            const apr_plan_line *const line = &plans->plans[k].lines[i];
            if (line->id >= first && line->id <= last && line->on == plans->plans[k].judged) sum += line->bytes;
        }
    return sum;
}

/* Where nothing is tied, nothing is there twice. */
static void weights_and_states_of_all_places_are_the_model_s(void **state)
{
    static const char *const names[] = {"llama-3.1-70b", "qwen3-30b-a3b", "qwen3-next-80b"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        asked a;
        apr_plans whole, parts;
        ask(&a, names[i], (uint64_t)1 << 40);
        assert_int_equal(apr_plans_make(&whole, &a.program, &a.options, NULL), APR_OK);
        a.options.n_devices = 3;
        assert_int_equal(apr_plans_make(&parts, &a.program, &a.options, NULL), APR_OK);
        assert_int_equal(parts.partition.n_places, 3);
        assert_int_equal(sum_of(&parts, 0, APR_LINE_WEIGHTS_HEAD), sum_of(&whole, 0, APR_LINE_WEIGHTS_HEAD));
        assert_int_equal(sum_of(&parts, APR_LINE_KV, APR_LINE_RECURRENT), sum_of(&whole, APR_LINE_KV, APR_LINE_RECURRENT));
        assert_int_equal(sum_of(&parts, APR_LINE_LOGITS, APR_LINE_LOGITS), sum_of(&whole, APR_LINE_LOGITS, APR_LINE_LOGITS));
        apr_plans_close(&parts);
        apr_plans_close(&whole);
        forget(&a);
    }
}

static void parts_of_one_card_share_its_memory(void **state)
{
    (void)state;
    asked a;
    apr_plans plans;
    ask(&a, "llama-3.1-8b", (uint64_t)24 << 30);
    a.options.n_devices = 2;
    a.options.shares_card[1] = true;
    assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, NULL), APR_OK);
    assert_int_equal(plans.plans[1].budget_bytes, ((uint64_t)24 << 30) - plans.plans[0].device_bytes);
    assert_null(apr_plan_line_of(&plans.plans[1], APR_LINE_CONTEXT));
    assert_true(apr_plans_fit(&plans));
    apr_plans_close(&plans);
    a.options.each.budget_bytes = (uint64_t)14 << 30; /* a part would fit, not both */
    assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, NULL), APR_OK);
    assert_true(plans.plans[0].fits && !plans.plans[1].fits && !apr_plans_fit(&plans));
    apr_plans_close(&plans);
    forget(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_layer_fewer_does_not_fit),
        cmocka_unit_test(experts_go_first),
        cmocka_unit_test(weights_and_states_of_all_places_are_the_model_s),
        cmocka_unit_test(parts_of_one_card_share_its_memory),
    };
    return cmocka_run_group_tests_name("plans", tests, NULL, NULL);
}
