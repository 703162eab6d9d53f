/* runtime/plan/plan.h: known totals of public models, layouts without overlaps, and the verdict at its edge. */
#include "kernels/cuda/small_gemm_workspace.h"
#include "runtime/plan/plan.h"
#include "runtime/program/op_spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Behind a device's workspace: a single token, and what is found of its logits. */
static const uint64_t token_bytes = 1280;

static const apr_hparams llama_8b = {.architecture = "llama",
                                     .hidden_size = 4096,
                                     .num_layers = 32,
                                     .num_heads = 32,
                                     .num_kv_heads = 8,
                                     .head_dim = 128,
                                     .vocab_size = 128256,
                                     .intermediate_size = 14336,
                                     .max_position_embeddings = 131072,
                                     .rms_norm_eps = 1e-5,
                                     .rope_theta = 500000.0,
                                     .rotary_dim = 128};

static apr_hparams qwen3(int64_t hidden, int64_t layers, int64_t heads, int64_t intermediate)
{
    apr_hparams h = llama_8b;
    h.architecture = "qwen3";
    h.hidden_size = hidden;
    h.num_layers = layers;
    h.num_heads = heads;
    h.intermediate_size = intermediate;
    h.vocab_size = 151936;
    h.max_position_embeddings = 40960;
    return h;
}

typedef struct planned {
    apr_program program;
    apr_plan plan;
} planned;

static planned make(const apr_hparams *h, const apr_plan_options *options)
{
    planned p;
    apr_error err = {0};
    if (apr_program_emit(&p.program, h, &err) != APR_OK || apr_plan_make(&p.plan, &p.program, options, &err) != APR_OK)
        fail_msg("%s", err.text);
    return p;
}

static void drop(planned *p)
{
    apr_plan_close(&p->plan);
    apr_program_close(&p->program);
}

static uint64_t line_bytes(const apr_plan *plan, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(plan, id);
    return line != NULL ? line->bytes : 0;
}

static void keys_and_values_take_what_is_known_of_public_models(void **state)
{
    (void)state;
    apr_hparams llama_70b = llama_8b;
    llama_70b.hidden_size = 8192;
    llama_70b.num_layers = 80;
    llama_70b.num_heads = 64;
    llama_70b.intermediate_size = 28672;
    const struct {
        apr_hparams hparams;
        uint64_t per_token; /* f16 */
    } cases[] = {{llama_8b, 131072}, {llama_70b, 327680}, {qwen3(4096, 36, 32, 12288), 147456}, {qwen3(1024, 28, 16, 3072), 114688}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_plan_options options = apr_plan_defaults;
        options.n_ctx = 8192;
        planned p = make(&cases[i].hparams, &options);
        assert_int_equal(line_bytes(&p.plan, APR_LINE_KV), 8192 * cases[i].per_token);
        drop(&p);
        options.kv_dtype = APR_Q8_0;
        options.n_sequences = 3;
        p = make(&cases[i].hparams, &options);
        assert_int_equal(line_bytes(&p.plan, APR_LINE_KV), 3 * 8192 * cases[i].per_token / 2 * 34 / 32);
        drop(&p);
    }
}

static void weights_are_summed_by_role_and_tied_heads_counted_once(void **state)
{
    (void)state;
    apr_hparams h = llama_8b;
    planned p = make(&h, &apr_plan_defaults);
    const uint64_t layers = 32;

    assert_int_equal(line_bytes(&p.plan, APR_LINE_WEIGHTS_EMBEDDING), 128256ull * 4096 * 2);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_WEIGHTS_HEAD), 128256ull * 4096 * 2);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_WEIGHTS_ATTENTION), layers * (4096 + 4096 + 1024 + 1024) * 4096 * 2);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_WEIGHTS_FEED_FORWARD), layers * 3 * 14336 * 4096 * 2);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_WEIGHTS_VECTORS), (2 * layers + 1) * 4096 * 2);
    assert_true(p.plan.fits); /* no budget, no verdict */
    assert_int_equal(p.plan.n_ctx, 4096);
    assert_int_equal(p.plan.max_ctx, 131072);
    drop(&p);
    h.tie_word_embeddings = true;
    p = make(&h, &apr_plan_defaults);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_WEIGHTS_HEAD), 0);
    assert_null(apr_plan_line_of(&p.plan, APR_LINE_WEIGHTS_HEAD));
    drop(&p);
}

static void the_caller_s_sizes_of_weights_are_used_and_padded(void **state)
{
    (void)state;
    apr_program program;
    apr_plan plan;
    apr_plan_options options = apr_plan_defaults;

    assert_int_equal(apr_program_emit(&program, &llama_8b, NULL), APR_OK);
    uint64_t *const bytes = malloc(program.n_weights * sizeof *bytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < program.n_weights; i++) bytes[i] = program.weights[i].optional ? 0 : 65;
    options.weight_bytes = bytes;
    assert_int_equal(apr_plan_make(&plan, &program, &options, NULL), APR_OK);
    assert_int_equal(line_bytes(&plan, APR_LINE_WEIGHTS_ATTENTION), 32 * 4 * 128);
    assert_int_equal(line_bytes(&plan, APR_LINE_WEIGHTS_VECTORS), 65 * 128);
    apr_plan_close(&plan);
    const apr_weight_slot slot = {.name = "w", .rank = 2, .dims = {10, 96}, .count = 1};
    assert_int_equal(apr_plan_slot_bytes(&slot, APR_Q8_0), (10 * 3 * 34 + 63) / 64 * 64);
    assert_int_equal(apr_plan_slot_bytes(&slot, APR_Q4_K), 10 * 96 * 2); /* 96 is not a multiple of 256 */
    free(bytes);
    apr_program_close(&program);
}

/* Values that are alive at the same time do not overlap, except an output that takes its dying input's place. */
static void check_overlaps(const planned *p)
{
    const apr_program *const g = &p->program;
    size_t *const first = calloc(g->n_values, sizeof *first), *const last = calloc(g->n_values, sizeof *last);

    assert_non_null(first);
    assert_non_null(last);
    for (size_t i = 0; i < g->n_ops; i++) {
        if (g->ops[i].out >= 0) first[g->ops[i].out] = last[g->ops[i].out] = i;
        for (int j = 0; j < APR_OP_MAX_IN; j++)
            if (g->ops[i].in[j] >= 0) last[g->ops[i].in[j]] = i;
    }
    for (size_t a = 0; a < g->n_values; a++)
        for (size_t b = a + 1; b < g->n_values; b++) {
            if (g->values[a].is_logits || g->values[b].is_logits || first[b] > last[a] || first[a] > last[b]) continue;
            const int64_t begin_a = p->plan.value_offsets[a], begin_b = p->plan.value_offsets[b];
            const bool apart = begin_a + g->values[a].width <= begin_b || begin_b + g->values[b].width <= begin_a;
            const apr_op *const op = &g->ops[first[b]];
            const bool in_place = last[a] == first[b] && op->in[0] == (int)a && begin_a == begin_b && apr_op_specs[op->kind]->in_place;
            if (!apart && !in_place) fail_msg("%s and %s overlap", g->values[a].name, g->values[b].name);
        }
    for (size_t v = 0; v < g->n_values; v++) {
        if (g->values[v].is_logits) continue;
        assert_true(p->plan.value_offsets[v] >= 0 && p->plan.value_offsets[v] % 16 == 0);
        assert_true(p->plan.value_offsets[v] + g->values[v].width <= p->plan.activation_width);
    }
    free(first);
    free(last);
}

static void activations_share_memory_only_when_they_do_not_meet(void **state)
{
    (void)state;
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        apr_hparams h = llama_8b;
        h.architecture = families[i];
        h.num_layers = 5;
        planned p = make(&h, &apr_plan_defaults);
        check_overlaps(&p);
        /* the residual, the angles, gate and up (the normed input dies before up's product): no more is needed */
        assert_int_equal(p.plan.activation_width, 4096 + 128 + 4096 + 2 * 14336);
        assert_int_equal(line_bytes(&p.plan, APR_LINE_ACTIVATIONS), 512ull * 4 * (uint64_t)p.plan.activation_width);
        drop(&p);
    }
}

static void a_window_bounds_the_cells_of_its_layers(void **state)
{
    (void)state;
    apr_hparams h = llama_8b;
    apr_plan_options options = apr_plan_defaults;
    h.architecture = "mistral";
    h.sliding_window = 1024;
    options.n_ctx = 65536;
    planned p = make(&h, &options);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_KV), 0);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_KV_WINDOW), (1024 + 512) * 131072ull);
    drop(&p);
    options.n_ctx = 1000;
    p = make(&h, &options);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_KV_WINDOW), 1000 * 131072ull);
    drop(&p);
}

static void a_device_pays_for_context_and_cublas_and_the_sums_add_up(void **state)
{
    (void)state;
    apr_plan_options options = apr_plan_defaults;
    uint64_t sums[2] = {0, 0};
    options.gpu = apr_gpu_find("rtx4090");
    planned p = make(&llama_8b, &options);

    assert_int_equal(p.plan.budget_bytes, apr_gpu_vram_bytes(options.gpu));
    assert_int_equal(line_bytes(&p.plan, APR_LINE_CONTEXT), apr_gpu_context_bytes(options.gpu, APR_DEFAULT_STACK_BYTES));
    assert_int_equal(line_bytes(&p.plan, APR_LINE_CUBLAS_WORKSPACE), 4 << 20);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_HEADROOM), 1 << 30);
    const uint64_t slot = 14336 / 256 * 640 + 14336 / 16 * 4; /* its inputs in two bytes with scales, and squares */
    assert_int_equal(p.plan.activations_slot, apr_cuda_round(14336 / 256 * 640) + apr_cuda_round(14336 / 16 * 4));
    assert_in_range(p.plan.activations_slot, slot, slot + 511);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_WORKSPACE), apr_cuda_linear_bytes(512, 14336, 4096, false) + token_bytes +
                                                                  APR_ACTIVATIONS_I16_SLOTS * p.plan.activations_slot); /* down_proj */
    for (size_t i = 0; i < p.plan.n_lines; i++) {
        assert_true(p.plan.lines[i].bytes > 0);
        assert_non_null(p.plan.lines[i].reason);
        sums[p.plan.lines[i].on] += p.plan.lines[i].bytes;
    }
    assert_int_equal(sums[APR_ON_HOST], p.plan.host_bytes);
    assert_int_equal(sums[APR_ON_DEVICE], p.plan.device_bytes);
    assert_true(p.plan.fits);
    drop(&p);
}

static void fp16_copies_are_a_line_of_their_own_for_what_is_packed_and_multiplied(void **state)
{
    (void)state;
    apr_program program;
    apr_plan plan;
    apr_plan_options options = apr_plan_defaults;
    uint64_t embedding = 0, all = 0;

    assert_int_equal(apr_program_emit(&program, &llama_8b, NULL), APR_OK);
    uint64_t *const bytes = malloc(program.n_weights * sizeof *bytes);
    apr_dtype *const dtypes = malloc(program.n_weights * sizeof *dtypes);
    for (size_t i = 0; i < program.n_weights; i++) {
        const apr_weight_slot *const slot = &program.weights[i];
        bytes[i] = slot->optional ? 0 : apr_plan_slot_bytes(slot, APR_MXFP4);
        dtypes[i] = APR_MXFP4;
        if (slot->rank == 2) all += apr_plan_slot_bytes(slot, APR_F16);
        if (slot->role == APR_ROLE_EMBEDDING) embedding = apr_plan_slot_bytes(slot, APR_F16);
    }
    options.gpu = apr_gpu_find("rtx4060ti-16g");
    options.weight_bytes = bytes;
    options.weight_dtypes = dtypes;
    assert_int_equal(apr_plan_make(&plan, &program, &options, NULL), APR_OK);
    assert_int_equal(line_bytes(&plan, APR_LINE_COPIES), 0);
    assert_true(plan.fits);
    apr_plan_close(&plan);
    options.copies = true;
    assert_int_equal(apr_plan_make(&plan, &program, &options, NULL), APR_OK);
    assert_int_equal(line_bytes(&plan, APR_LINE_COPIES), all - embedding); /* rows of the embedding are only looked up */
    assert_false(plan.fits);
    assert_int_equal(plan.lines[plan.breaking].id, APR_LINE_COPIES);
    apr_plan_close(&plan);
    for (size_t i = 0; i < program.n_weights; i++) dtypes[i] = APR_F16;
    assert_int_equal(apr_plan_make(&plan, &program, &options, NULL), APR_OK);
    assert_int_equal(line_bytes(&plan, APR_LINE_COPIES), 0); /* nothing is packed */
    apr_plan_close(&plan);
    free(bytes);
    free(dtypes);
    apr_program_close(&program);
}

static apr_hparams mixture(const char *architecture)
{
    apr_hparams h = llama_8b;
    h.architecture = architecture;
    h.num_experts = 6;
    h.num_experts_per_tok = 2;
    h.moe_intermediate_size = 640;
    return h;
}

/* Of a slot there may be many tensors: one matrix for each expert. All of them are stored, and all are copied. */
static void what_is_there_for_each_expert_counts_for_all_of_them(void **state)
{
    (void)state;
    const apr_hparams h = mixture("qwen3_moe");
    apr_program program;
    apr_plan plan;
    apr_plan_options options = apr_plan_defaults;
    const uint64_t one = 640ull * 4096, all = 32 * 6 * 3 * one, routers = 32 * 6 * 4096;
    const uint64_t attention = 32ull * (4096 + 4096 + 1024 + 1024) * 4096, head = 128256ull * 4096;
    char name[128];

    assert_int_equal(apr_program_emit(&program, &h, NULL), APR_OK);
    uint64_t *const bytes = malloc(program.n_weights * sizeof *bytes);
    for (size_t i = 0; i < program.n_weights; i++) {
        bytes[i] = program.weights[i].optional ? 0 : apr_plan_slot_bytes(&program.weights[i], APR_Q8_0);
        if (strstr(program.weights[i].name, ".3.mlp.experts.") == NULL) continue;
        assert_int_equal(program.weights[i].count, 6);
        apr_slot_name(&program.weights[i], 5, name, sizeof name);
        assert_non_null(strstr(name, "model.layers.3.mlp.experts.5."));
    }
    options.gpu = apr_gpu_find("h200");
    options.weight_bytes = bytes;
    options.copies = true;
    assert_int_equal(apr_plan_make(&plan, &program, &options, NULL), APR_OK);
    assert_int_equal(line_bytes(&plan, APR_LINE_WEIGHTS_EXPERTS), (all + routers) / 32 * 34);
    assert_int_equal(line_bytes(&plan, APR_LINE_COPIES), 2 * (all + routers + attention + head));
    apr_plan_close(&plan);
    free(bytes);
    apr_program_close(&program);
}

static void biases_of_experts_are_float32_vectors(void **state)
{
    (void)state;
    const apr_hparams h = mixture("gpt_oss");
    apr_plan_options options = apr_plan_defaults;
    options.gpu = apr_gpu_find("h200");
    planned p = make(&h, &options);
    const uint64_t norms = 2 * 4096, biases = 4096 + 1024 + 1024 + 4096, sinks = 32, router = 16 /* 6, in steps of 16 */;
    const uint64_t experts = 6 * (2 * 640 + 4096);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_F32_VECTORS), 4 * (32 * (norms + biases + sinks + router + experts) + 4096 + 64));
    for (size_t i = 0; i < p.program.n_ops; i++)
        for (int bias = 3; bias < 6 && p.program.ops[i].kind == APR_OP_EXPERTS; bias++) assert_true(p.program.ops[i].weight[bias] >= 0);
    drop(&p);
}

/* Whole when they are not too large, else parts of equal size. */
static void a_matrix_is_decoded_whole_or_in_equal_parts(void **state)
{
    (void)state;
    static const struct {
        int64_t n_in, n_out, rows;
        size_t bytes;
    } cases[] = {
        {3584, 37888, 37888, APR_CUDA_DEQUANTIZED_BYTES},    /* 272 MB */
        {3584, 152064, 50688, APR_CUDA_DEQUANTIZED_BYTES},   /* 1.1 GB in three */
        {18944, 3584, 1792, APR_CUDA_DEQUANTIZED_BYTES / 4}, /* not 3,328 and 256 */
        {1 << 21, 1000, 256, 1 << 20},                       /* 256 at least */
        {1 << 21, 100, 100, 1 << 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(apr_cuda_dequantized_rows(cases[i].n_in, cases[i].n_out, cases[i].bytes), cases[i].rows);
    for (int64_t n_out = 1; n_out < 100000; n_out += 997) {
        const int64_t rows = apr_cuda_dequantized_rows(4096, n_out, 1 << 24), n_tiles = (n_out + rows - 1) / rows;
        assert_true(rows * 4096 * 2 <= 1 << 24 && (rows == n_out || rows % 256 == 0));
        assert_true(n_out - (n_tiles - 1) * rows > rows - 256 * n_tiles); /* the last is as large but for what is rounded up */
    }
}

static size_t small_gemm_bytes(const apr_hparams *h, int64_t n_tokens, const apr_gpu *gpu)
{
    static const apr_tensor gate = {0};
    const apr_experts_args a = {.n_in = h->hidden_size,
                                .n_mid = h->moe_intermediate_size,
                                .n_out = h->hidden_size,
                                .n_experts = h->num_experts,
                                .n_used = h->num_experts_per_tok,
                                .gate = &gate};
    return apr_cuda_experts_small_gemm_bytes(&a, n_tokens, gpu->n_sms);
}

/* Workspace is for every kind of product and attention, not for those that run today. */
static void experts_and_sinks_need_workspace_too(void **state)
{
    (void)state;
    apr_hparams h = mixture("gpt_oss");
    apr_plan_options options = apr_plan_defaults;
    options.n_batch = 4096;
    h.hidden_size = 256;
    h.vocab_size = 64;
    h.num_heads = h.num_kv_heads = 2;
    h.moe_intermediate_size = 6144;
    planned p = make(&h, &options); /* on the host the widest input decides, or a head's tiles */
    assert_true(p.plan.workspace_slice >= apr_linear_slice(6144));
    assert_true(p.plan.workspace_slice >= apr_attend_slice(128));
    drop(&p);
    options.gpu = apr_gpu_find("h200");
    p = make(&h, &options);
    assert_int_equal(line_bytes(&p.plan, APR_LINE_WORKSPACE),
                     small_gemm_bytes(&h, 1024, options.gpu) + token_bytes + APR_ACTIVATIONS_I16_SLOTS * p.plan.activations_slot);
    assert_true(small_gemm_bytes(&h, 1024, options.gpu) > apr_cuda_experts_bytes(4096, 256, 6144, 256, 2));
    assert_true(small_gemm_bytes(&h, 2048, options.gpu) > (size_t)APR_SMALL_GEMM_ENOUGH_MIB << 20);
    drop(&p);
}

/* So that no number depends on the batch, there is workspace for a small GEMM of 64 tokens, even if one is evaluated at a time. */
static void few_tokens_have_workspace_for_a_small_gemm_at_any_batch(void **state)
{
    (void)state;
    apr_hparams h = mixture("gpt_oss");
    apr_plan_options options = apr_plan_defaults;
    options.n_batch = options.n_logits = 1;
    options.gpu = apr_gpu_find("h200");
    h.hidden_size = h.moe_intermediate_size = 256;
    h.vocab_size = 64;
    planned p = make(&h, &options);
    const uint64_t linear = apr_cuda_linear_small_gemm_bytes(64, 4096, options.gpu->n_sms), experts = small_gemm_bytes(&h, 64, options.gpu);
    assert_true(p.plan.workspace_slice * sizeof(float) >= (linear > experts ? linear : experts));
    drop(&p);
}

static void the_verdict_turns_at_the_byte(void **state)
{
    (void)state;
    apr_plan_options options = apr_plan_defaults;
    options.gpu = apr_gpu_find("rtx4090");
    options.n_ctx = 8192;
    planned p = make(&llama_8b, &options);
    const uint64_t need = p.plan.device_bytes;
    drop(&p);

    options.budget_bytes = need;
    p = make(&llama_8b, &options);
    assert_true(p.plan.fits);
    assert_int_equal(p.plan.breaking, -1);
    assert_int_equal(p.plan.max_ctx, 8192);
    drop(&p);
    options.budget_bytes = need - 1;
    p = make(&llama_8b, &options);
    assert_false(p.plan.fits);
    assert_int_equal(p.plan.short_bytes, 1);
    assert_int_equal(p.plan.lines[p.plan.breaking].id, APR_LINE_HEADROOM);
    assert_int_equal(p.plan.max_ctx, 8192 - 16); /* a block of the driver less, 128 KiB a position */
    /* and that context does fit */
    options.n_ctx = p.plan.max_ctx;
    drop(&p);
    p = make(&llama_8b, &options);
    assert_true(p.plan.fits);
    drop(&p);

    options.gpu = apr_gpu_find("t4"); /* 15 GiB of weights do not go in at all */
    options.budget_bytes = 0;
    p = make(&llama_8b, &options);
    assert_false(p.plan.fits);
    assert_int_equal(p.plan.max_ctx, 0);
    assert_int_equal(p.plan.lines[p.plan.breaking].id, APR_LINE_WEIGHTS_HEAD);
    drop(&p);
}

/* Public configurations and the totals that are known of them. */
static void mixtures_and_hybrids_take_what_is_known_of_them(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int64_t n_ctx, n_sequences;
        uint64_t kv_bytes, recurrent_bytes, least_weights, most_weights; /* weights in 16 bits */
    } cases[] = {
        {"tests/data/shapes/qwen3-30b-a3b.json", 4096, 1, 4096 * 98304ull, 0, 60900000000, 61200000000},
        {"tests/data/shapes/gpt-oss-20b.json", 4096, 1, 4096 * 24576ull, 0, 41600000000, 42000000000},
        {"tests/data/shapes/qwen3.5-27b.json", 262144, 4, (uint64_t)65536 << 20, (uint64_t)(598.5 * 0x1p20), 53000000000, 55000000000},
        {"tests/data/shapes/qwen3.5-35b-a3b.json", 4096, 1, 4096 * 20480ull, 0, 68000000000, 71000000000},
        {"tests/data/shapes/llama-3.1-70b.json", 4096, 1, 4096 * 327680ull, 0, 141000000000, 141300000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_model model;
        apr_error err = {0};
        apr_plan_options options = apr_plan_defaults;
        uint64_t weights = 0;
        const apr_status status = apr_model_open(&model, cases[i].path, &err);

        if (status != APR_OK) fail_msg("%s", err.text);
        options.n_ctx = cases[i].n_ctx;
        options.n_sequences = cases[i].n_sequences;
        planned p = make(&model.hparams, &options);
        for (int role = 0; role < APR_ROLE_COUNT; role++) weights += line_bytes(&p.plan, (apr_line_id)role);
        print_message("%s: %.2f GB of weights, %.1f MiB kv, %.1f MiB window, %.1f MiB recurrent\n", cases[i].path, (double)weights * 1e-9,
                      (double)line_bytes(&p.plan, APR_LINE_KV) / 0x1p20, (double)line_bytes(&p.plan, APR_LINE_KV_WINDOW) / 0x1p20,
                      (double)line_bytes(&p.plan, APR_LINE_RECURRENT) / 0x1p20);
        assert_int_equal(line_bytes(&p.plan, APR_LINE_KV), cases[i].kv_bytes);
        if (cases[i].recurrent_bytes > 0) assert_int_equal(line_bytes(&p.plan, APR_LINE_RECURRENT), cases[i].recurrent_bytes);
        assert_in_range(weights, cases[i].least_weights, cases[i].most_weights);
        check_overlaps(&p);
        drop(&p);
        apr_model_close(&model);
    }
}

static void senseless_options_are_refused_and_huge_ones_do_not_overflow(void **state)
{
    (void)state;
    static const struct {
        int64_t n_ctx, n_batch, n_logits, n_sequences;
        apr_dtype kv_dtype;
        apr_status status;
    } cases[] = {
        {-1, 1, 1, 1, APR_F16, APR_E_USAGE},
        {1, 0, 1, 1, APR_F16, APR_E_USAGE},
        {1, 1, 0, 1, APR_F16, APR_E_USAGE},
        {1, 1, 1, 0, APR_F16, APR_E_USAGE},
        {1, 1, 1, 1, APR_Q4_K, APR_E_UNSUPPORTED},
        {(int64_t)1 << 40, 1, 1, 1, APR_F16, APR_E_USAGE},
        {(int64_t)1 << 31, (int64_t)1 << 31, (int64_t)1 << 31, 65536, APR_F32, APR_OK},
    };
    apr_hparams h = llama_8b;
    apr_program program;
    h.num_layers = 10000;
    h.num_heads = h.num_kv_heads = 65536;
    h.head_dim = h.rotary_dim = 1024;
    h.hidden_size = h.vocab_size = h.intermediate_size = APR_MAX_ROW;
    assert_int_equal(apr_program_emit(&program, &h, NULL), APR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_plan plan;
        apr_plan_options options = apr_plan_defaults;
        options.n_ctx = cases[i].n_ctx;
        options.n_batch = cases[i].n_batch;
        options.n_logits = cases[i].n_logits;
        options.n_sequences = cases[i].n_sequences;
        options.kv_dtype = cases[i].kv_dtype;
        options.gpu = apr_gpu_find("h200");
        assert_int_equal(apr_plan_make(&plan, &program, &options, NULL), cases[i].status);
        if (cases[i].status == APR_OK) assert_false(plan.fits);
        apr_plan_close(&plan);
    }
    apr_program_close(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_values_take_what_is_known_of_public_models),
        cmocka_unit_test(weights_are_summed_by_role_and_tied_heads_counted_once),
        cmocka_unit_test(the_caller_s_sizes_of_weights_are_used_and_padded),
        cmocka_unit_test(activations_share_memory_only_when_they_do_not_meet),
        cmocka_unit_test(a_window_bounds_the_cells_of_its_layers),
        cmocka_unit_test(a_device_pays_for_context_and_cublas_and_the_sums_add_up),
        cmocka_unit_test(fp16_copies_are_a_line_of_their_own_for_what_is_packed_and_multiplied),
        cmocka_unit_test(what_is_there_for_each_expert_counts_for_all_of_them),
        cmocka_unit_test(biases_of_experts_are_float32_vectors),
        cmocka_unit_test(a_matrix_is_decoded_whole_or_in_equal_parts),
        cmocka_unit_test(experts_and_sinks_need_workspace_too),
        cmocka_unit_test(few_tokens_have_workspace_for_a_small_gemm_at_any_batch),
        cmocka_unit_test(the_verdict_turns_at_the_byte),
        cmocka_unit_test(mixtures_and_hybrids_take_what_is_known_of_them),
        cmocka_unit_test(senseless_options_are_refused_and_huge_ones_do_not_overflow),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
