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
    apr_plan_default_weights(&a->program, a->bytes);
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

/* What a model takes on one device with the i-th batch size; 0: there are not so many. */
static uint64_t bytes_at(const asked *a, int64_t batch, int i, apr_plan_speed *pace)
{
    apr_plan_options options = a->options.each;
    apr_plan plan;
    if (i >= apr_plan_n_speeds(batch, true)) return 0;
    apr_plan_set_speed(&options, batch, true, i);
    *pace = (apr_plan_speed){options.n_batch, options.tile_bytes};
    assert_int_equal(apr_plan_make(&plan, &a->program, &options, NULL), APR_OK);
    const uint64_t bytes = plan.device_bytes;
    apr_plan_close(&plan);
    return bytes;
}

/* With just the bytes of a pace it is taken, with one less the next; what is not named by the user only. */
static void a_plan_tries_smaller_batches_until_it_fits(void **state)
{
    (void)state;
    static const int64_t batches[] = {0, 700};
    asked a;
    ask(&a, "qwen2.5-32b", (uint64_t)400 << 30);
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        apr_plan_speed pace, before = {0};
        uint64_t last = UINT64_MAX;
        int n = 0;
        for (uint64_t bytes; (bytes = bytes_at(&a, batches[b], n, &pace)) > 0; n++) {
            apr_plans plans;
            assert_true(bytes < last && (n == 0 || (pace.n_batch <= before.n_batch && pace.tile_bytes <= before.tile_bytes)));
            last = bytes;
            before = pace;
            a.options.each.budget_bytes = bytes;
            a.options.each.n_batch = batches[b];
            assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, NULL), APR_OK);
            assert_true(apr_plans_fit(&plans));
            assert_int_equal(plans.plans[0].device_bytes, bytes);
            assert_int_equal(plans.plans[0].n_batch, batches[b] > 0 ? batches[b] : pace.n_batch);
            const char *const reason = apr_plan_line_of(&plans.plans[0], APR_LINE_ACTIVATIONS)->reason;
            assert_int_equal(strstr(reason, "2048 at a time do not fit") != NULL, pace.n_batch < 2048 && batches[b] == 0);
            apr_plans_close(&plans);
        }
        assert_true(n > 2);
        a.options.each.budget_bytes = last - 1;
        assert_false(fits_with(&a, (apr_offload){0}));
    }
    forget(&a);
}

/* The longest context is one that fits when it is asked for, whatever the pace; one more position does not. It is the same whatever was
 * asked for. */
static void the_longest_context_assumes_the_smallest_batch(void **state)
{
    (void)state;
    asked a;
    apr_plans plans;
    ask(&a, "qwen2.5-32b", (uint64_t)69 << 30); /* less than the 32,768 positions that the model has */
    a.options.each.n_batch = 0;
    assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, NULL), APR_OK);
    assert_true(apr_plans_fit(&plans));
    assert_int_equal(plans.plans[0].n_batch, APR_DEVICE_BATCH);
    const int64_t longest = plans.plans[0].max_ctx;
    apr_plans_close(&plans);
    a.options.each.n_ctx = longest;
    assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, NULL), APR_OK);
    assert_true(apr_plans_fit(&plans));
    assert_int_equal(plans.plans[0].max_ctx, longest);
    apr_plans_close(&plans);
    a.options.each.n_ctx = longest + 1;
    assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, NULL), APR_OK);
    assert_false(apr_plans_fit(&plans));
    assert_int_equal(plans.plans[0].max_ctx, longest);
    assert_int_equal(plans.plans[0].own_ctx, 32768);
    apr_plans_close(&plans);
    forget(&a);
}

static void a_host_has_one_batch_size(void **state)
{
    (void)state;
    apr_plan_options options = apr_plan_defaults;
    apr_plan_set_speed(&options, 0, false, 0);
    assert_int_equal(options.n_batch, APR_HOST_BATCH);
    apr_plan_set_speed(&options, 77, false, 0);
    assert_int_equal(options.n_batch, 77);
    assert_true(apr_plan_n_speeds(0, false) == 1 && apr_plan_n_speeds(77, false) == 1);
}

/* Fits with that offload, and what it then costs the host a token; UINT64_MAX: it does not fit, or there is nothing to offload. */
static uint64_t traffic_with(const asked *a, apr_offload offload)
{
    apr_plans_options options = a->options;
    apr_plans plans;
    options.offload = offload;
    if (apr_plans_make(&plans, &a->program, &options, NULL) != APR_OK) return UINT64_MAX;
    const apr_partition_cost cost = apr_partition_cost_of(&plans.partition, &a->program, options.host_weight_bytes);
    const uint64_t traffic = apr_plans_fit(&plans) ? apr_partition_host_traffic(&cost) : UINT64_MAX;
    apr_plans_close(&plans);
    return traffic;
}

static uint64_t least_traffic(const asked *a)
{
    uint64_t least = UINT64_MAX;
    for (int64_t n = 1; n <= a->program.num_layers; n++) {
        const apr_offload ways[] = {{.n_layers = n}, {.experts = true, .n_expert_layers = n}};
        for (size_t i = 0; i < 2; i++) {
            const uint64_t traffic = traffic_with(a, ways[i]);
            if (traffic < least) least = traffic;
        }
    }
    return least;
}

/* Every number of layers, and of layers' experts, is tried. */
static void no_other_offload_that_fits_costs_less(void **state)
{
    static const struct {
        const char *shape, *gpu;
        uint64_t budget_gib, host_gib; /* 0: the GPU's, not checked */
        int64_t n_ctx;
    } cases[] = {
        {"qwen3-30b-a3b", "rtx4090", 0, 0, 4096},  {"qwen3-30b-a3b", "a100-40g", 57, 0, 4096},
        {"gpt-oss-20b", "rtx4070", 0, 0, 131072},  {"gpt-oss-20b", "rtx5090", 39, 0, 8192},
        {"qwen3.5-35b-a3b", "h100", 64, 0, 32768}, {"glm-4.7-flash", "l40s", 0, 0, 65536},
        {"qwen3-next-80b", "h200", 0, 0, 131072},  {"llama4-scout", "h200", 0, 0, 8192},
        {"deepseek-v3", "b300", 0, 0, 4096},       {"qwen3-30b-a3b", "rtx5080", 0, 48, 4096},
        {"gpt-oss-120b", "a6000", 0, 0, 16384},    {"glm-4.5-air", "h100", 0, 0, 8192},
        {"minimax-m2", "h200", 0, 0, 4096},        {"granite-4-h-small", "rtx5090", 0, 0, 32768},
        {"mistral-small-4", "h200", 0, 0, 8192},   {"kimi-k2", "b300", 0, 0, 2048},
        {"qwen2.5-32b", "rtx5090", 0, 0, 4096},    {"nemotron-3-nano-30b-a3b", "l40s", 0, 0, 262144},
    };
    int n_offloads = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        asked a;
        apr_offload smallest;
        apr_plans plans;
        ask(&a, cases[i].shape, cases[i].budget_gib << 30);
        a.options.each.gpu = apr_gpu_find(cases[i].gpu);
        a.options.each.n_ctx = cases[i].n_ctx;
        a.options.host_budget_bytes = cases[i].host_gib << 30;
        assert_false(fits_with(&a, (apr_offload){0}));
        const uint64_t least = least_traffic(&a);
        if (apr_plans_smallest(&plans, &smallest, &a.program, &a.options, NULL) == APR_OK) {
            const uint64_t traffic = traffic_with(&a, smallest);
            apr_plans_close(&plans);
            if (traffic != least)
                fail_msg("%s on %s: experts %d of %lld, layers %lld cost %llu bytes a token; %llu are enough", cases[i].shape, cases[i].gpu,
                         smallest.experts, (long long)smallest.n_expert_layers, (long long)smallest.n_layers, (unsigned long long)traffic,
                         (unsigned long long)least);
            n_offloads++;
        } else if (least != UINT64_MAX) {
            fail_msg("%s on %s: none was found", cases[i].shape, cases[i].gpu);
        }
        forget(&a);
    }
    assert_true(n_offloads >= 15);
}

static void without_memory_on_the_host_nothing_is_offloaded(void **state)
{
    (void)state;
    asked a;
    apr_offload smallest;
    apr_plans plans;
    ask(&a, "qwen3-30b-a3b", (uint64_t)12 << 30);
    a.options.host_budget_bytes = (uint64_t)32 << 30; /* more than 40 GiB would have to go there */
    assert_int_equal(apr_plans_smallest(&plans, &smallest, &a.program, &a.options, NULL), APR_E_NO);
    assert_true(plans.plans == NULL);
    forget(&a);
}

/* Lines of host and device count against the one memory; nothing is gained by an offload. */
static void a_shared_memory_is_one_pool(void **state)
{
    (void)state;
    asked a;
    apr_offload smallest;
    apr_plans plans;
    apr_error err = {0};
    ask(&a, "gemma-4-e2b", 0);
    a.options.each.gpu = apr_gpu_find("gb10");
    a.options.each.system_bytes = apr_gpu_system_bytes(a.options.each.gpu);
    assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, NULL), APR_OK);
    const apr_plan *const p = &plans.plans[0];
    assert_true(p->is_shared && p->host_bytes > a.options.each.system_bytes + ((uint64_t)4 << 30)); /* tables of rows are on the host */
    assert_int_equal(p->taken_bytes, p->host_bytes + p->device_bytes);
    a.options.each.n_ctx = p->n_ctx;
    a.options.each.budget_bytes = p->taken_bytes;
    a.options.each.n_batch = p->n_batch;
    apr_plans_close(&plans);
    assert_true(fits_with(&a, (apr_offload){0}));
    assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, NULL), APR_OK);
    const int64_t largest = plans.plans[0].max_ctx;
    apr_plans_close(&plans);
    a.options.each.n_ctx = largest;
    assert_true(fits_with(&a, (apr_offload){0}));
    a.options.each.n_ctx = largest + 1;
    assert_false(fits_with(&a, (apr_offload){0}));
    a.options.each.budget_bytes = (uint64_t)6 << 30;
    assert_int_equal(apr_plans_smallest(&plans, &smallest, &a.program, &a.options, NULL), APR_E_NO);
    a.options.offload = (apr_offload){.n_layers = 1};
    assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "GB10 shares its memory with the host"));
    a.options.each.gpu = apr_gpu_find("h100");
    assert_int_equal(apr_gpu_system_bytes(a.options.each.gpu), 0);
    forget(&a);
}

/* The larger GPU gets the larger share, and each its own context. */
static void gpus_of_different_size_have_shares_of_theirs(void **state)
{
    (void)state;
    asked a;
    apr_plans plans;
    ask(&a, "qwen2.5-32b", 0);
    a.options.n_devices = 2;
    a.options.gpus[0] = apr_gpu_find("h100");
    a.options.gpus[1] = apr_gpu_find("rtx4090");
    assert_int_equal(apr_plans_make(&plans, &a.program, &a.options, NULL), APR_OK);
    assert_true(apr_plans_fit(&plans)); /* in F16 it would not */
    assert_int_equal(plans.plans[0].budget_bytes, apr_gpu_vram_bytes(a.options.gpus[0]));
    assert_int_equal(plans.plans[1].budget_bytes, apr_gpu_vram_bytes(a.options.gpus[1]));
    assert_int_equal(apr_plan_line_of(&plans.plans[1], APR_LINE_CONTEXT)->bytes,
                     apr_gpu_context_bytes(a.options.gpus[1], APR_DEFAULT_STACK_BYTES));
    assert_true(plans.plans[0].device_bytes > 2 * plans.plans[1].device_bytes);
    apr_plans_close(&plans);
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

static void parts_of_one_gpu_share_its_memory(void **state)
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

/* Of the only plan. */
static uint64_t filled_in(const asked *a, uint64_t *all)
{
    apr_plans plans;
    assert_int_equal(apr_plans_make(&plans, &a->program, &a->options, NULL), APR_OK);
    const apr_plan_line *const line = apr_plan_line_of(&plans.plans[0], APR_LINE_FILLED);
    const uint64_t bytes = line != NULL ? line->bytes : 0;
    assert_true(apr_plans_fit(&plans));
    *all = plans.plans[0].device_bytes;
    apr_plans_close(&plans);
    return bytes;
}

/* gpt-oss' 2,880 columns are 11 items and a quarter: of 12, 136 bytes of each row are filled up to. */
static void rows_of_experts_are_padded_where_it_fits(void **state)
{
    const uint64_t n_rows = 32 * 2880, each = n_rows * (12 * 136 - 2880 / 32 * 17), n_stacks = 24 * 3;
    uint64_t all, less;
    asked a;
    (void)state;
    ask(&a, "gpt-oss-20b", 0);
    apr_dtype *const dtypes = malloc((a.program.n_weights + 1) * sizeof *dtypes);
    uint64_t *const filled = malloc((a.program.n_weights + 1) * sizeof *filled);
    assert_true(dtypes != NULL && filled != NULL);
    for (size_t i = 0; i < a.program.n_weights; i++) {
        const bool is_stack = a.program.weights[i].count == 32 && (a.program.weights[i].uses & APR_USE_MULTIPLIED) != 0;
        dtypes[i] = is_stack ? APR_MXFP4 : APR_BF16;
        a.bytes[i] = apr_plan_slot_bytes(&a.program.weights[i], dtypes[i]);
    }
    apr_plan_padded_weights(&a.program, dtypes, 1, filled);
    for (size_t i = 0; i < a.program.n_weights; i++) assert_int_equal(filled[i], dtypes[i] == APR_MXFP4 ? each : 0);
    a.options.each.padding_bytes = filled;
    a.options.each.n_batch = 0; /* what fits */
    assert_int_equal(filled_in(&a, &all), n_stacks * each);
    a.options.each.budget_bytes = all - n_stacks * each / 16; /* a slower pace is given up for it */
    assert_int_equal(filled_in(&a, &less), n_stacks * each);
    a.options.each.budget_bytes = all - n_stacks * each + (4 << 20);
    assert_int_equal(filled_in(&a, &less), 0);
    a.options.each.budget_bytes = all;
    a.options.each.gpu = apr_gpu_find("t4"); /* no products that stream */
    assert_int_equal(filled_in(&a, &less), 0);
    for (size_t i = 0; i < a.program.n_weights; i++) /* down has no items: nothing of its layer is taken by such a product */
        if (dtypes[i] == APR_MXFP4 && strstr(a.program.weights[i].name, "down") != NULL) dtypes[i] = APR_Q4_0;
    apr_plan_padded_weights(&a.program, dtypes, 1, filled);
    for (size_t i = 0; i < a.program.n_weights; i++) assert_int_equal(filled[i], 0);
    free(dtypes);
    free(filled);
    forget(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_layer_fewer_does_not_fit),
        cmocka_unit_test(a_plan_tries_smaller_batches_until_it_fits),
        cmocka_unit_test(the_longest_context_assumes_the_smallest_batch),
        cmocka_unit_test(a_host_has_one_batch_size),
        cmocka_unit_test(no_other_offload_that_fits_costs_less),
        cmocka_unit_test(without_memory_on_the_host_nothing_is_offloaded),
        cmocka_unit_test(a_shared_memory_is_one_pool),
        cmocka_unit_test(gpus_of_different_size_have_shares_of_theirs),
        cmocka_unit_test(weights_and_states_of_all_places_are_the_model_s),
        cmocka_unit_test(parts_of_one_gpu_share_its_memory),
        cmocka_unit_test(rows_of_experts_are_padded_where_it_fits),
    };
    return cmocka_run_group_tests_name("plans", tests, NULL, NULL);
}
