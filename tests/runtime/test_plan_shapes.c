/* runtime/plan/plan.h on configurations of public models: what each keeps of a token and of a sequence, and what it weighs. The totals
 * are those of the papers and of measurements, not of this planner. */
#include "runtime/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct planned {
    apr_model model;
    apr_program program;
    apr_plan plan;
} planned;

static planned make(const char *shape, const apr_plan_options *options)
{
    planned p;
    apr_error err = {0};
    char path[128];

    snprintf(path, sizeof path, "tests/data/shapes/%s.json", shape);
    if (apr_model_open(&p.model, path, &err) != APR_OK || apr_program_emit(&p.program, &p.model.hparams, &err) != APR_OK ||
        apr_plan_make(&p.plan, &p.program, options, &err) != APR_OK)
        fail_msg("%s: %s", shape, err.text);
    return p;
}

static void drop(planned *p)
{
    apr_plan_close(&p->plan);
    apr_program_close(&p->program);
    apr_model_close(&p->model);
}

static uint64_t line_bytes(const planned *p, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(&p->plan, id);
    return line != NULL ? line->bytes : 0;
}

static uint64_t cache_bytes(const planned *p) { return line_bytes(p, APR_LINE_KV) + line_bytes(p, APR_LINE_KV_LATENT); }

/* Of each token in an FP16 cache, of each sequence whatever its length, and in the windows. */
static const struct {
    const char *shape;
    uint64_t per_token, per_sequence, window_cell; /* window_cell: of one position in all sliding or chunked layers */
    int64_t window;
} known[] = {
    {"llama-3.1-8b", 131072, 0, 0, 0},
    {"llama-3.1-70b", 327680, 0, 0, 0},
    {"qwen3-8b", 147456, 0, 0, 0},
    {"qwen3-30b-a3b", 98304, 0, 0, 0},
    {"gpt-oss-20b", 24576, 0, 24576, 128},
    {"gpt-oss-120b", 36864, 0, 36864, 128},
    {"qwen3.5-27b", 65536, 156893184 /* 149.6 MiB */, 0, 0},
    {"qwen3.5-35b-a3b", 20480, 65863680 /* 62.8 MiB */, 0, 0},
    {"qwen3-next-80b", 12 * 2 * 2 * 256 * 2, 36 * 4 * (32 * 128 * 128 + 3 * (2 * 16 * 128 + 32 * 128)), 0, 0},
    {"deepseek-v3", 70272, 0, 0, 0},
    {"kimi-k2", 70272, 0, 0, 0},
    {"deepseek-v3.2", 61 * (576 + 128) * 2, 0, 0, 0}, /* a key of the indexer for each latent */
    {"glm-5", 78 * (576 + 128) * 2, 0, 0, 0},
    {"glm-4.7-flash", 54144, 0, 0, 0},
    {"mistral-small-4", 23040, 0, 0, 0},
    {"glm-4.5-air", 188416, 0, 0, 0},
    {"minimax-m2", 253952, 0, 0, 0},
    {"nemotron-3-nano-30b-a3b", 6 * 2 * 2 * 128 * 2, 23 * 4 * (64 * 64 * 128 + 3 * (4096 + 2 * 8 * 128)), 0, 0},
    {"granite-4-h-small", 4 * 2 * 8 * 128 * 2, 36 * 4 * (128 * 64 * 128 + 3 * (8192 + 2 * 128)), 0, 0},
    {"lfm2-1.2b", 6 * 2 * 8 * 64 * 2, 10 * 4 * 2 * 2048, 0, 0},
    {"gemma-4-e2b", 3 * 2 * 512 * 2, 0, 12 * 2 * 256 * 2, 512}, /* the last 20 of 35 layers read the caches of others */
    {"qwen2.5-vl-7b", 28 * 2 * 4 * 128 * 2, 0, 0, 0},
    {"qwen3-vl-30b-a3b", 98304, 0, 0, 0},
    {"falcon-h1-7b", 44 * 2 * 2 * 128 * 2, 44 * 4 * (24 * 128 * 256 + 3 * (3072 + 2 * 256)), 0, 0},
    {"kimi-linear-48b-a3b", 7 * 576 * 2, 20 * 4 * (32 * 128 * 128 + 3 * 3 * 4096), 0, 0},
    {"deepseek-v3.2-two-layers", 2 * (576 + 128) * 2, 0, 0, 0},
    {"gemma-4-31b", 10 * 2 * 4 * 512 * 2, 0, 50 * 2 * 16 * 256 * 2, 1024},
};

static void every_familys_hyperparameters_are_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        apr_plan_options options = apr_plan_defaults;
        for (options.n_sequences = 1; options.n_sequences <= 3; options.n_sequences += 2) {
            options.n_ctx = 8192;
            planned p = make(known[i].shape, &options);
            const uint64_t n = (uint64_t)options.n_sequences, cells = (uint64_t)known[i].window + 512; /* a batch of 512 is stored first */
            print_message("%-24s %3lld KiB a token, %.1f MiB a sequence, %.1f MiB of windows\n", known[i].shape,
                          (long long)(cache_bytes(&p) / 8192 / n / 1024), (double)line_bytes(&p, APR_LINE_RECURRENT) / 0x1p20 / (double)n,
                          (double)line_bytes(&p, APR_LINE_KV_WINDOW) / 0x1p20 / (double)n);
            assert_int_equal(cache_bytes(&p), n * 8192 * known[i].per_token);
            assert_int_equal(line_bytes(&p, APR_LINE_RECURRENT), n * known[i].per_sequence);
            assert_int_equal(line_bytes(&p, APR_LINE_KV_WINDOW), n * cells * known[i].window_cell);
            drop(&p);
        }
    }
}

/* gpt-oss-20b: 3 MiB for the 128 positions that stay visible. */
static void a_window_is_its_cells_and_a_batch(void **state)
{
    (void)state;
    apr_plan_options options = apr_plan_defaults;
    options.n_ctx = 131072;
    options.n_batch = 128;
    planned p = make("gpt-oss-20b", &options);
    assert_int_equal(line_bytes(&p, APR_LINE_KV_WINDOW), 2 * 3 << 20);
    drop(&p);
    options.n_ctx = 200; /* never more than there are positions */
    p = make("gpt-oss-20b", &options);
    assert_int_equal(line_bytes(&p, APR_LINE_KV_WINDOW), 200 * 24576);
    drop(&p);
}

/* Chunks forget what is before them: 36 of 48 layers of llama 4 never need more than a chunk and a batch. */
static void chunks_are_windows(void **state)
{
    (void)state;
    apr_plan_options options = apr_plan_defaults;
    options.n_ctx = 65536;
    planned p = make("llama4-scout", &options);
    assert_int_equal(line_bytes(&p, APR_LINE_KV), 12ull * 65536 * 4096);
    assert_int_equal(line_bytes(&p, APR_LINE_KV_WINDOW), 36ull * (8192 + 512) * 4096);
    drop(&p);
}

/* Latents are a line of their own: keys that have the values in them. */
static void values_inside_keys_are_kept_once(void **state)
{
    (void)state;
    apr_plan_options options = apr_plan_defaults;
    options.n_ctx = 1000;
    planned p = make("deepseek-v3", &options);
    assert_int_equal(line_bytes(&p, APR_LINE_KV), 0);
    assert_int_equal(line_bytes(&p, APR_LINE_KV_LATENT), 61 * 1000 * (512 + 64) * 2);
    assert_non_null(strstr(apr_plan_line_of(&p.plan, APR_LINE_KV_LATENT)->reason, "of which 512 are the values"));
    assert_string_equal(apr_plan_line_of(&p.plan, APR_LINE_KV_LATENT)->label, "latent cache");
    drop(&p);
}

/* Numbers of weights, in units of 10^9, of the text part. */
static void every_family_weighs_what_is_known_of_it(void **state)
{
    (void)state;
    static const struct {
        const char *shape;
        double billions, within;
    } cases[] = {
        {"qwen3-30b-a3b", 30.5, 0.1},     {"gpt-oss-20b", 20.9, 0.1},
        {"gpt-oss-120b", 116.8, 0.3},     {"qwen3-next-80b", 79.7, 0.4},
        {"deepseek-v3", 671.0, 1.0},      {"kimi-k2", 1026.0, 3.0},
        {"glm-4.5-air", 106.9, 1.0},      {"minimax-m2", 228.7, 1.0},
        {"llama4-scout", 107.8, 0.5},     {"nemotron-3-nano-30b-a3b", 31.6, 0.2},
        {"granite-4-h-small", 32.2, 0.3}, {"lfm2-1.2b", 1.17, 0.01},
        {"glm-4.7-flash", 29.9, 0.2},     {"gemma-4-31b", 30.7, 0.2},
        {"qwen2.5-vl-7b", 7.62, 0.01},    {"qwen3-vl-30b-a3b", 30.5, 0.1},
        {"falcon-h1-7b", 7.59, 0.01},     {"kimi-linear-48b-a3b", 49.1, 0.2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        planned p = make(cases[i].shape, &apr_plan_defaults);
        double n = 0.0;
        for (size_t j = 0; j < p.program.n_weights; j++)
            if (!p.program.weights[j].optional) n += (double)apr_slot_elems(&p.program.weights[j]);
        print_message("%-24s %.2f billion weights\n", cases[i].shape, n * 1e-9);
        assert_true(n * 1e-9 > cases[i].billions - cases[i].within && n * 1e-9 < cases[i].billions + cases[i].within);
        drop(&p);
    }
}

/* The largest context is where the caches fill what everything else leaves, to the cell; windows and states do not grow with it. */
static void the_largest_context_follows_from_what_grows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        apr_plan_options options = apr_plan_defaults;
        options.n_ctx = 4096;
        planned small = make(known[i].shape, &options);
        const uint64_t fixed = small.plan.host_bytes - 4096 * known[i].per_token, n_cells = 5000;
        drop(&small);
        options.budget_bytes = fixed + n_cells * known[i].per_token + known[i].per_token / 2;
        planned p = make(known[i].shape, &options);
        assert_int_equal(p.plan.max_ctx, 5000);
        drop(&p);
    }
}

/* Per-layer embeddings are looked up on the host; the device is given the rows. */
static void per_layer_embeddings_stay_in_host_memory(void **state)
{
    (void)state;
    apr_plan_options options = apr_plan_defaults;
    const uint64_t table = 262144ull * 35 * 256 * 2;
    planned p = make("gemma-4-e2b", &options);
    const uint64_t on_host = line_bytes(&p, APR_LINE_WEIGHTS_EMBEDDING);
    assert_int_equal(line_bytes(&p, APR_LINE_HOST_TABLES), 0);
    drop(&p);
    options.gpu = apr_gpu_find("rtx4060ti");
    p = make("gemma-4-e2b", &options);
    assert_int_equal(line_bytes(&p, APR_LINE_WEIGHTS_EMBEDDING), on_host - table);
    assert_int_equal(line_bytes(&p, APR_LINE_HOST_TABLES), table);
    assert_int_equal(line_bytes(&p, APR_LINE_HOST_ROWS), 512ull * 35 * 256 * 4);
    assert_non_null(strstr(apr_plan_line_of(&p.plan, APR_LINE_HOST_TABLES)->reason, "a row of 35840 bytes per token"));
    assert_true(p.plan.host_bytes > table && p.plan.device_bytes < (uint64_t)7 << 30);
    drop(&p);
}

/* Small allocations fit into blocks of others. */
static uint64_t unless_small(uint64_t n_bytes) { return n_bytes > APR_DRIVER_BLOCK_BYTES / 2 ? n_bytes : 0; }

/* What a driver gives is whole blocks: the allocations of a device add up to them. */
static void a_device_s_allocations_are_whole_blocks(void **state)
{
    (void)state;
    static const apr_line_id alone[] = {APR_LINE_CUBLAS_WORKSPACE, APR_LINE_F32_VECTORS, APR_LINE_ACTIVATIONS, APR_LINE_LOGITS,
                                        APR_LINE_WORKSPACE};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        apr_plan_options options = apr_plan_defaults;
        options.gpu = apr_gpu_find("h200");
        planned p = make(known[i].shape, &options);
        uint64_t weights = 0, sum = line_bytes(&p, APR_LINE_ROUNDING);
        for (int role = 0; role < APR_ROLE_COUNT; role++) weights += line_bytes(&p, (apr_line_id)role);
        sum += unless_small(weights) + unless_small(p.plan.states_bytes);
        for (size_t j = 0; j < sizeof alone / sizeof *alone; j++) sum += unless_small(line_bytes(&p, alone[j]));
        assert_int_equal(sum % APR_DRIVER_BLOCK_BYTES, 0);
        assert_true(line_bytes(&p, APR_LINE_ROUNDING) < 7 * APR_DRIVER_BLOCK_BYTES);
        drop(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_familys_hyperparameters_are_kept),
        cmocka_unit_test(a_window_is_its_cells_and_a_batch),
        cmocka_unit_test(chunks_are_windows),
        cmocka_unit_test(values_inside_keys_are_kept_once),
        cmocka_unit_test(every_family_weighs_what_is_known_of_it),
        cmocka_unit_test(the_largest_context_follows_from_what_grows),
        cmocka_unit_test(per_layer_embeddings_stay_in_host_memory),
        cmocka_unit_test(a_device_s_allocations_are_whole_blocks),
    };
    return cmocka_run_group_tests_name("plan of public shapes", tests, NULL, NULL);
}
