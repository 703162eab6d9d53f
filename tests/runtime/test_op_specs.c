/* runtime/program/op_spec.h and op_memory.h: every operation has a spec, and programs, plans and backends do what it says. */
#include "formats/base/bytes.h"
#include "kernels/cuda/api.h"
#include "runtime/plan/plan.h"
#include "runtime/program/emit.h"
#include "runtime/program/op_spec.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static apr_program emit(const char *path)
{
    apr_model model;
    apr_program program = {0};
    apr_error err = {0};

    if (apr_model_open(&model, path, &err) != APR_OK || apr_program_emit(&program, &model.hparams, &err) != APR_OK)
        fail_msg("%s", err.text);
    apr_model_close(&model);
    return program;
}

/* Every shape there is: each family that can be emitted, tied and not, with experts and without. */
static void with_every_shape(void (*check)(const apr_program *program))
{
    DIR *const folder = opendir("tests/data/shapes");
    int n = 0;

    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[300];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "tests/data/shapes/%s", entry->d_name);
        apr_program program = emit(path);
        check(&program);
        apr_program_close(&program);
        n++;
    }
    closedir(folder);
    assert_true(n >= 10);
}

static bool is_one_use(apr_weight_use use) { return use == APR_USE_MULTIPLIED || use == APR_USE_ROWS || use == APR_USE_FLOAT; }

/* --- specs --- */

static void every_operation_has_a_spec_of_its_own(void **state)
{
    (void)state;
    for (int kind = 0; kind < APR_OP_COUNT; kind++) {
        const apr_op_spec *const card = apr_op_specs[kind];
        assert_non_null(card);
        assert_int_equal(card->kind, kind);
        assert_in_range(card->n_inputs, 0, APR_OP_MAX_IN);
        if (card->in_place) assert_true(card->n_inputs > 0);
        for (int other = 0; other < kind; other++) {
            assert_ptr_not_equal(card, apr_op_specs[other]);
            assert_string_not_equal(apr_op_name((apr_op_kind)kind), apr_op_name((apr_op_kind)other));
        }
    }
}

static void every_weight_has_one_use_and_every_product_a_workspace(void **state)
{
    (void)state;
    for (int kind = 0; kind < APR_OP_COUNT; kind++) {
        const apr_op_spec *const card = apr_op_specs[kind];
        bool multiplies = false;
        for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
            const apr_spec_weight *const weight = &card->weights[j];
            if (weight->what == NULL) assert_int_equal(weight->use, APR_USE_NONE);
            else assert_true(is_one_use(weight->use));
            if (j > 0 && weight->what != NULL) assert_non_null(card->weights[j - 1].what); /* no gaps */
            multiplies |= weight->use == APR_USE_MULTIPLIED;
        }
        if (multiplies) assert_true(card->host_floats != NULL && card->device_bytes != NULL && !card->in_place); /* inputs are read again */
    }
}

static void every_bound_is_a_number_with_a_reason(void **state)
{
    (void)state;
    for (int kind = 0; kind < APR_OP_COUNT; kind++) {
        const apr_op_spec *const card = apr_op_specs[kind];
        assert_non_null(card->bound.reason);
        assert_true(card->bound.relative >= 0.0 && card->bound.relative <= card->bound.peak && card->bound.peak < 0.01);
        assert_true((card->bound.peak > 0.0) == (card->bound.relative > 0.0));
        assert_true(card->position_error >= 0.0 && card->position_error < 1e-5);
        if (card->fp16_bound.reason == NULL) continue;
        assert_true(card->fp16_bound.peak > card->bound.peak && card->fp16_bound.relative > card->bound.relative);
    }
}

static void what_a_backend_has_can_be_bound(void **state)
{
    (void)state;
    for (int kind = 0; kind < APR_OP_COUNT; kind++) {
        const apr_op_spec *const card = apr_op_specs[kind];
        assert_true((card->bind != NULL) == (apr_ref_backend.ops[kind] != NULL));
        assert_true((card->bind != NULL) == (apr_host_backend.ops[kind] != NULL));
    }
}

/* --- programs --- */

static void check_weights(const apr_program *p, const apr_op *op, unsigned *uses)
{
    const apr_op_spec *const card = apr_op_specs[op->kind];
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
        if (op->weight[j] < 0 && (card->weights[j].what == NULL || card->weights[j].optional)) continue;
        if (op->weight[j] < 0) fail_msg("%s in layer %d has no %s", apr_op_name(op->kind), op->layer, card->weights[j].what);
        if (card->weights[j].what == NULL)
            fail_msg("%s does not say what it does with '%s'", apr_op_name(op->kind), p->weights[op->weight[j]].name);
        uses[op->weight[j]] |= card->weights[j].use;
    }
}

static void check_op(const apr_op *op)
{
    const apr_op_spec *const card = apr_op_specs[op->kind];
    /* the first is there; of the others in the spec, some are a vector of weights instead, or a part of the first */
    for (int j = 0; j < APR_OP_MAX_IN; j++) assert_true(op->in[j] < 0 || j < card->n_inputs);
    assert_int_equal(op->in[0] >= 0, card->n_inputs > 0);
    assert_int_equal(op->state >= 0, card->state != APR_STATE_UNUSED);
    assert_int_equal(op->rope >= 0, card->has_rope);
    assert_int_equal(op->out >= 0, card->state != APR_STATE_WRITTEN); /* what makes no value fills a state */
}

static void check_program(const apr_program *p)
{
    unsigned *const uses = calloc(p->n_weights, sizeof *uses);

    for (size_t j = 0; j < p->n_ops; j++) {
        check_op(&p->ops[j]);
        check_weights(p, &p->ops[j], uses);
    }
    for (size_t j = 0; j < p->n_ropes; j++)
        if (p->ropes[j].divisors >= 0) uses[p->ropes[j].divisors] |= APR_USE_FLOAT;
    for (size_t j = 0; j < p->n_weights; j++) {
        if (uses[j] == 0) fail_msg("%s: nothing uses '%s'", p->architecture, p->weights[j].name);
        assert_int_equal(p->weights[j].uses, uses[j]);
        assert_int_equal(p->weights[j].role == APR_ROLE_VECTORS, uses[j] == APR_USE_FLOAT);
    }
    free(uses);
}

static void programs_give_operations_what_their_specs_ask_for(void **state)
{
    (void)state;
    with_every_shape(check_program);
}

static void check_states(const apr_program *p)
{
    unsigned *const done = calloc(p->n_states + 1, sizeof *done);

    for (size_t j = 0; j < p->n_ops; j++) {
        if (p->ops[j].state < 0) continue;
        unsigned *const so_far = &done[p->ops[j].state];
        if (apr_op_specs[p->ops[j].kind]->state == APR_STATE_READ) assert_true((*so_far & APR_STATE_WRITTEN) != 0);
        *so_far |= apr_op_specs[p->ops[j].kind]->state;
    }
    /* where an operation is missing, no operation reads its output */
    for (size_t j = 0; j < p->n_states; j++) assert_int_equal(done[j], APR_STATE_READ_AND_WRITTEN);
    free(done);
}

static void every_state_is_written_before_it_is_read(void **state)
{
    (void)state;
    with_every_shape(check_states);
}

static void an_operation_refuses_weights_that_it_can_do_nothing_with(void **state)
{
    (void)state;
    static const apr_hparams h = {.architecture = "llama", .hidden_size = 8};
    const struct {
        apr_op_kind kind;
        int at;
        const char *words;
    } cases[] = {{APR_OP_LINEAR, 0, "llama: 'bias' cannot be used by the operation 'linear'"}, /* a vector is not a matrix */
                 {APR_OP_ADD, 0, "llama: 'bias' cannot be used by the operation 'add'"},
                 {APR_OP_LINEAR, 1, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_program p = {0};
        apr_error err = {0};
        apr_emitter e = {.program = &p, .hparams = &h, .err = &err, .layer = -1};
        apr_op op = apr_no_op;
        op.kind = cases[i].kind;
        op.weight[cases[i].at] = apr_emit_vector(&e, "bias", 8, false);
        apr_emit_op(&e, op);
        assert_string_equal(err.text, cases[i].words);
        assert_int_equal(e.status, cases[i].words[0] != '\0' ? APR_E_UNSUPPORTED : APR_OK);
        apr_program_close(&p);
    }
}

static void a_tied_head_is_the_table_looked_up_and_multiplied(void **state)
{
    (void)state;
    apr_program p = emit("tests/data/shapes/qwen2.5-0.5b.json");
    assert_string_equal(p.weights[0].name, "model.embed_tokens.weight");
    assert_int_equal(p.weights[0].uses, APR_USE_ROWS | APR_USE_MULTIPLIED);
    assert_int_equal(p.weights[0].role, APR_ROLE_EMBEDDING);
    apr_program_close(&p);
    p = emit("tests/data/shapes/qwen2.5-7b.json"); /* has a head of its own */
    assert_int_equal(p.weights[0].uses, APR_USE_ROWS);
    assert_int_equal(p.weights[p.n_weights - 1].uses, APR_USE_MULTIPLIED);
    apr_program_close(&p);
}

static void biases_of_experts_are_contiguous_floats(void **state)
{
    (void)state;
    apr_program p = emit("tests/data/shapes/gpt-oss-20b.json");
    int n = 0;
    for (size_t i = 0; i < p.n_weights; i++) {
        if (strstr(p.weights[i].name, "experts.down_proj_bias") == NULL) continue;
        assert_int_equal(apr_slot_elems(&p.weights[i]), 32 * 2880);
        assert_int_equal(p.weights[i].uses, APR_USE_FLOAT);
        assert_int_equal(p.weights[i].role, APR_ROLE_VECTORS);
        n++;
    }
    assert_int_equal(n, p.num_layers);
    apr_program_close(&p);
}

/* --- plans --- */

/* An output may begin where the first input does; it overlaps nothing else that the operation reads. */
static void check_place(const apr_program *p, const apr_plan *plan, const apr_op *op)
{
    if (op->out < 0 || p->values[op->out].is_logits) return;
    const int64_t begin = plan->value_offsets[op->out], end = begin + p->values[op->out].width;
    for (int j = 0; j < APR_OP_MAX_IN; j++) {
        if (op->in[j] < 0) continue;
        const int64_t from = plan->value_offsets[op->in[j]], to = from + p->values[op->in[j]].width;
        const bool apart = end <= from || to <= begin;
        if (!apart && !(j == 0 && begin == from && apr_op_specs[op->kind]->in_place))
            fail_msg("%s in layer %d writes on its input %d", apr_op_name(op->kind), op->layer, j);
    }
}

static void check_plan(const apr_program *p)
{
    uint64_t *const bytes = malloc(p->n_weights * sizeof *bytes);
    apr_plan_options options = apr_plan_defaults;
    apr_plan plan;

    for (size_t w = 0; w < p->n_weights; w++) bytes[w] = apr_plan_slot_bytes(&p->weights[w], APR_Q8_0) + 64;
    options.gpu = apr_gpu_find("h200");
    options.copies = true;
    options.weight_bytes = bytes;
    assert_int_equal(apr_plan_make(&plan, p, &options, NULL), APR_OK);
    for (size_t j = 0; j < p->n_ops; j++) check_place(p, &plan, &p->ops[j]);
    for (size_t w = 0; w < p->n_weights; w++) {
        assert_int_equal(plan.vector_offsets[w] >= 0, (p->weights[w].uses & APR_USE_FLOAT) != 0);
        assert_int_equal(plan.copy_offsets[w] >= 0, (p->weights[w].uses & APR_USE_MULTIPLIED) != 0);
    }
    apr_plan_close(&plan);
    free(bytes);
}

static void plans_put_outputs_and_weights_where_specs_say(void **state)
{
    (void)state;
    with_every_shape(check_plan);
}

static void check_workspace(const apr_program *p)
{
    const apr_op_sizes sizes = {
        .n_batch = 512, .n_logits = 16, .tile_bytes = APR_CUDA_DEQUANTIZED_BYTES, .n_multiprocessors = apr_gpu_find("h200")->n_sms};
    apr_plan_options options = apr_plan_defaults;
    size_t floats = 0, shared = 0, bytes = 0;
    apr_plan plan;

    for (size_t j = 0; j < p->n_ops; j++) {
        const apr_op_spec *const card = apr_op_specs[p->ops[j].kind];
        const size_t all = card->host_shared != NULL ? card->host_shared(p, &p->ops[j], &sizes) : 0;
        const size_t f = card->host_floats != NULL ? card->host_floats(p, &p->ops[j]) : 0;
        const size_t b = card->device_bytes != NULL ? card->device_bytes(p, &p->ops[j], &sizes) : 0;
        if (f > floats) floats = f;
        if (all > shared) shared = all;
        if (b > bytes) bytes = b;
    }
    assert_int_equal(apr_plan_make(&plan, p, &options, NULL), APR_OK);
    assert_in_range(plan.workspace_slice, floats, floats + 15);
    assert_in_range(plan.workspace_shared, shared, shared + 15);
    apr_plan_close(&plan);
    options.gpu = apr_gpu_find("h200");
    assert_int_equal(apr_plan_make(&plan, p, &options, NULL), APR_OK);
    const uint64_t behind = apr_cuda_round(sizeof(apr_cuda_token)) + APR_ACTIVATIONS_I16_SLOTS * plan.activations_slot;
    assert_int_equal(apr_plan_line_of(&plan, APR_LINE_WORKSPACE)->bytes, bytes + behind);
    apr_plan_close(&plan);
}

static void a_workspace_holds_the_largest_that_is_asked_for(void **state)
{
    (void)state;
    with_every_shape(check_workspace);
}

/* --- backends --- */

static void what_a_backend_lacks_is_found(void **state)
{
    (void)state;
    apr_program p = emit("tests/data/shapes/gpt-oss-20b.json");
    apr_backend backend = apr_host_backend;

    assert_null(apr_program_missing_op(&p, &backend));
    backend.ops[APR_OP_ROUTE] = NULL;
    assert_int_equal(apr_program_missing_op(&p, &backend)->kind, APR_OP_ROUTE);
    assert_int_equal(apr_program_missing_op(&p, &backend)->layer, 0);
    apr_program_close(&p);
}

/* A number of each type, where the operation has it. */
static void facts_are_read_from_the_operation(void **state)
{
    (void)state;
    apr_op op = {.kind = APR_OP_ROUTE};
    op.args.route.shape = (apr_route_shape){.score = APR_SCORE_SQRT_SOFTPLUS, .n_experts = 160, .normalise = true, .scale = 2.5f};
    double sum = 0.0;
    for (const apr_op_fact *f = apr_op_specs[APR_OP_ROUTE]->facts; f->what != NULL; f++) sum += apr_op_fact_of(&op, f);
    assert_true(sum == (double)APR_SCORE_SQRT_SOFTPLUS + 160.0 + 1.0 + 2.5);
}

static void every_fact_has_a_name_and_an_offset_within_the_arguments(void **state)
{
    (void)state;
    for (int kind = 0; kind < APR_OP_COUNT; kind++)
        for (const apr_op_fact *f = apr_op_specs[kind]->facts; f != NULL && f->what != NULL; f++) {
            assert_true(f->offset < sizeof(apr_op_args));
            for (const apr_op_fact *other = apr_op_specs[kind]->facts; other != f; other++) assert_string_not_equal(other->what, f->what);
        }
}

static void an_operation_is_described_by_types_sizes_and_weight(void **state)
{
    (void)state;
    static const apr_tensor table = {.name = "model.embed_tokens.weight", .dtype = APR_Q8_0, .rank = 2, .dims = {151936, 896}},
                            nameless = {.dtype = APR_F16, .rank = 2, .dims = {4, 8}};
    static const apr_cache cache = {.dtype = APR_F8_E4M3};
    const struct {
        apr_op_kind kind;
        apr_op_args args;
        const char *words;
    } cases[] = {
        {APR_OP_EMBED, {.embed = {.n_tokens = 12, .table = &table}}, "embed 'model.embed_tokens.weight' (q8_0 [151936, 896], 12 tokens)"},
        {APR_OP_LINEAR, {.linear = {.n_tokens = 1, .weight = &nameless}}, "linear '?' (f16 [4, 8], 1 tokens)"},
        {APR_OP_ANGLES, {.angles = {.n_tokens = 2}}, "rotary angles (f32, 2 tokens)"},
        {APR_OP_NORM, {.norm = {.n_tokens = 3}}, "norm (f32, 3 tokens)"},
        {APR_OP_ROPE, {.rope = {.n_tokens = 4}}, "rope (f32, 4 tokens)"},
        {APR_OP_KV_STORE,
         {.kv_store = {.n_tokens = 5, .position = 100, .n_kv_heads = 2, .key_dim = 64, .value_dim = 32, .keys = cache}},
         "kv store (5 tokens at position 100, 2 heads of 64, cache fp8)"},
        {APR_OP_ATTEND,
         {.attend = {.n_tokens = 6, .position = 7, .n_heads = 8, .n_kv_heads = 2, .key_dim = 128, .value_dim = 128, .keys = cache}},
         "attend (6 tokens at position 7, 8 heads on 2 of 128, cache fp8)"},
        {APR_OP_GLU, {.glu = {.n_tokens = 8}}, "glu (f32, 8 tokens)"},
        {APR_OP_ADD, {.add = {.n_tokens = 9}}, "add (f32, 9 tokens)"},
        {APR_OP_EXPERTS, {.experts = {.n_tokens = 10, .up = &nameless}}, "experts '?' (f16 [4, 8], 10 tokens)"},
        {APR_OP_DELTA, {.delta = {.n_tokens = 11}}, "delta rule (f32, 11 tokens)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        apr_op_describe(cases[i].kind, &cases[i].args, text, sizeof text);
        assert_string_equal(text, cases[i].words);
    }
}

/* --- the memory of operations --- */

static void indices_become_pointers(void **state)
{
    (void)state;
    apr_value values[2] = {{.name = "a", .width = 8}, {.name = "logits", .width = 100, .is_logits = true}};
    apr_state states[1] = {{.kind = APR_STATE_KV, .n_heads = 3, .key_dim = 64, .value_dim = 32}};
    const apr_program program = {.values = values, .n_values = 2, .states = states, .n_states = 1};
    static float activations[1024], logits[200], vectors[64];
    static uint8_t memory[4096];
    const apr_op_memory g = {.program = &program,
                             .n_tokens = 7,
                             .first_row = 5,
                             .n_rows = 2,
                             .activations = activations,
                             .logits = logits,
                             .value_offsets = (int64_t[]){16, -1},
                             .n_batch = 10,
                             .vectors = vectors,
                             .vector_offsets = (int64_t[]){32, -1},
                             .rope_offsets = (int64_t[]){48},
                             .states = memory,
                             .state_offsets = (uint64_t[]){128},
                             .state_cells = (int64_t[]){3},
                             .kv_dtype = APR_Q8_0};

    assert_ptr_equal(apr_op_memory_value(&g, 0), activations + 160); /* its share of a token's, for the whole batch */
    assert_ptr_equal(apr_op_memory_value(&g, 1), logits);
    assert_ptr_equal(apr_op_memory_vector(&g, 0), vectors + 32);
    assert_null(apr_op_memory_vector(&g, 1));
    assert_null(apr_op_memory_vector(&g, -1));
    assert_ptr_equal(apr_op_memory_frequencies(&g, 0), vectors + 48);
    assert_int_equal(apr_op_memory_rows_of(&g, 0).n, 7);
    assert_int_equal(apr_op_memory_rows_of(&g, 1).first, 5);
    assert_int_equal(apr_op_memory_rows_of(&g, 1).n, 2);

    const apr_cache keys = apr_op_memory_cache(&g, 0, 0), cached = apr_op_memory_cache(&g, 0, 1);
    assert_int_equal(keys.row_bytes, 68); /* two blocks of 34 */
    assert_int_equal(keys.n_cells, 3);
    assert_ptr_equal(keys.data, memory + 128);
    assert_ptr_equal(cached.data, memory + 128 + apr_align_up(3 * 3 * 68, 64));
    assert_int_equal(cached.row_bytes, 34);
    states[0].values_in_keys = true; /* kept once */
    assert_ptr_equal(apr_op_memory_cache(&g, 0, 1).data, memory + 128);
    assert_int_equal(apr_op_memory_cache(&g, 0, 1).row_bytes, 68);
    assert_ptr_equal(apr_op_memory_state(&g, 0), memory + 128);
}

static void logits_are_made_of_the_rows_that_are_wanted(void **state)
{
    (void)state;
    apr_value values[2] = {{.name = "normed", .width = 8}, {.name = "logits", .width = 100, .is_logits = true}};
    const apr_program program = {.values = values, .n_values = 2};
    static float activations[256], logits[200];
    static const apr_tensor head = {.name = "lm_head.weight", .rank = 2, .dims = {100, 8}};
    const apr_tensor *const matrices[1] = {&head};
    const apr_op_memory g = {.program = &program,
                             .n_tokens = 7,
                             .first_row = 5,
                             .n_rows = 2,
                             .activations = activations,
                             .logits = logits,
                             .value_offsets = (int64_t[]){0, -1},
                             .n_batch = 10,
                             .matrices = matrices};
    const apr_op op = {.kind = APR_OP_LINEAR, .in = {0, -1, -1}, .out = 1, .weight = {0, -1, -1, -1}, .state = -1, .rope = -1};
    apr_op_args args = op.args;

    apr_op_specs[APR_OP_LINEAR]->bind(&g, &op, &args);
    assert_int_equal(args.linear.n_tokens, 2);
    assert_ptr_equal(args.linear.x, activations + 5 * 8);
    assert_ptr_equal(args.linear.out, logits);
    assert_ptr_equal(args.linear.weight, &head);
    assert_null(args.linear.bias);
    assert_int_equal(args.linear.n_in, 8);
    assert_int_equal(args.linear.n_out, 100);
}

/* Four heads of 6 numbers become four of 10, each by rows of its own. */
static void heads_with_matrices_of_their_own_share_the_width(void **state)
{
    (void)state;
    apr_value values[2] = {{.name = "q", .width = 24}, {.name = "absorbed", .width = 40}};
    apr_weight_slot slot = {.name = "kv_b", .rank = 2, .dims = {4 * 16, 10}, .count = 1};
    const apr_program program = {.values = values, .n_values = 2, .weights = &slot, .n_weights = 1};
    static float activations[256];
    static const apr_tensor matrix = {.name = "kv_b", .rank = 2, .dims = {64, 10}};
    const apr_tensor *const matrices[1] = {&matrix};
    const apr_op_memory g = {.program = &program,
                             .n_tokens = 2,
                             .activations = activations,
                             .value_offsets = (int64_t[]){0, 32},
                             .n_batch = 2,
                             .matrices = matrices};
    apr_op op = {.kind = APR_OP_LINEAR, .in = {0, -1, -1}, .out = 1, .weight = {0, -1, -1, -1, -1, -1}, .state = -1, .rope = -1};
    apr_op_args args;

    op.args.linear.heads = (apr_linear_heads){.n = 4, .rows = 16, .first = 3, .transposed = true};
    apr_op_bind(&g, &op, &args);
    assert_int_equal(args.linear.n_in, 6);
    assert_int_equal(args.linear.n_out, 10);
    assert_int_equal(apr_linear_first_row(&args.linear, 2), 2 * 16 + 3);
    assert_int_equal(apr_linear_head_rows(&args.linear), 6);
    const apr_op_sizes sizes = {.n_batch = 100, .n_logits = 16, .tile_bytes = APR_CUDA_DEQUANTIZED_BYTES};
    assert_int_equal(apr_op_specs[APR_OP_LINEAR]->device_bytes(&program, &op, &sizes),
                     apr_cuda_linear_heads_bytes(100, &op.args.linear.heads, 6, 10, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_has_a_spec_of_its_own),
        cmocka_unit_test(every_weight_has_one_use_and_every_product_a_workspace),
        cmocka_unit_test(every_bound_is_a_number_with_a_reason),
        cmocka_unit_test(what_a_backend_has_can_be_bound),
        cmocka_unit_test(programs_give_operations_what_their_specs_ask_for),
        cmocka_unit_test(every_state_is_written_before_it_is_read),
        cmocka_unit_test(an_operation_refuses_weights_that_it_can_do_nothing_with),
        cmocka_unit_test(a_tied_head_is_the_table_looked_up_and_multiplied),
        cmocka_unit_test(biases_of_experts_are_contiguous_floats),
        cmocka_unit_test(plans_put_outputs_and_weights_where_specs_say),
        cmocka_unit_test(a_workspace_holds_the_largest_that_is_asked_for),
        cmocka_unit_test(what_a_backend_lacks_is_found),
        cmocka_unit_test(facts_are_read_from_the_operation),
        cmocka_unit_test(every_fact_has_a_name_and_an_offset_within_the_arguments),
        cmocka_unit_test(heads_with_matrices_of_their_own_share_the_width),
        cmocka_unit_test(an_operation_is_described_by_types_sizes_and_weight),
        cmocka_unit_test(indices_become_pointers),
        cmocka_unit_test(logits_are_made_of_the_rows_that_are_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
