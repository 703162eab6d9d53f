/* runtime/session/session_steps.c on a CUDA device: a step whose operations are put together has the bits of one whose are not, where
 * products are so small that each stage of them has a block to itself, and it is put together where it should be. */
#include "kernels/cuda_loader.h"
#include "kernels/rows.h"
#include "runtime/session/sample.h"
#include "runtime/session/session.h"
#include "tests/support/program_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two tiles; the first step is checked, the second recorded, the others replayed; in the second layer heads are rotated in the fix-up,
 * because nothing is between. */
enum { ROWS = 11, STEPS = 4, LAYERS = 2 };

static const apr_cuda_api *cuda;
static apr_cuda_api counted;
static int n_products, n_inputs, n_experts;
static bool go_together; /* with code for 9.0 or later; else both are run row by row */

static apr_status count_rows(apr_cuda_device *device, const apr_rows_args *args, apr_error *err)
{
    n_products++;
    return cuda->rows(device, args, err);
}

static apr_status count_inputs(apr_cuda_device *device, const apr_rows_inputs *args, apr_error *err)
{
    n_inputs++;
    return cuda->rows_inputs(device, args, err);
}

static apr_status count_experts(apr_cuda_device *device, const apr_rows_experts *args, apr_error *err)
{
    n_experts++;
    return cuda->rows_experts(device, args, err);
}

typedef struct kind {
    const char *architecture;
    apr_dtype dtype;
    int64_t hidden, middle;
    int products, inputs; /* calls of a step of a model of one layer: 0: it is not put together */
    bool other_routers;   /* of a mixture: in BF16, and with as many experts as have a small GEMM of their own */
} kind;

static bool is_mixture(const kind *k) { return strstr(k->architecture, "moe") != NULL; }

/* Each layer has as many but one. */
static int calls(int of_one_layer) { return of_one_layer > 0 && go_together ? LAYERS * (of_one_layer - 1) + 1 : 0; }

/* Routers in BF16, as quantized mixtures have them. */
static void change_routers(apr_model *model)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        apr_tensor *const t = &model->tensors[i];
        if (strstr(t->name, "mlp.gate.weight") == NULL) continue;
        const int64_t n = apr_tensor_elems(t);
        float *const values = apr_arena_array(&model->arena, (size_t)n, sizeof *values);
        uint8_t *const data = apr_arena_alloc(&model->arena, (size_t)n * 2 + 64);
        apr_error err = {0};
        assert_true(values != NULL && data != NULL);
        apr_ref_codecs[t->dtype].decode(t->data, values, n);
        apr_ref_codecs[APR_BF16].encode(values, data, n);
        t->dtype = APR_BF16, t->data = data;
        if (apr_tensor_size(t, "a test", &err) != APR_OK) fail_msg("%s", err.text);
    }
}

static void open_model(program_model *m, const kind *k)
{
    static const uint8_t mixers[LAYERS] = {APR_LAYER_FULL, APR_LAYER_FULL}, dense[LAYERS] = {APR_FFN_DENSE, APR_FFN_DENSE},
                         experts[LAYERS] = {APR_FFN_EXPERTS, APR_FFN_EXPERTS};
    apr_hparams h = program_model_sizes(k->architecture);
    apr_error err = {0};
    h.hidden_size = k->hidden;
    h.intermediate_size = k->middle;
    h.moe_intermediate_size = 256;
    h.head_dim = h.rotary_dim = 64;
    h.vocab_size = 128;
    h.num_layers = LAYERS;
    h.layer_kinds = mixers;
    h.ffn_kinds = is_mixture(k) ? experts : dense;
    if (!is_mixture(k)) h.num_experts = 0;
    else if (k->other_routers) h.num_experts = 16;
    if (program_model_open(m, &h, k->dtype, &err) != APR_OK) fail_msg("%s", err.text);
    if (k->other_routers) change_routers(&m->model);
}

/* Logits of all prompts and steps, [1 + STEPS, ROWS, vocab]; sequences stand at different positions and come in another order than they
 * were begun in. */
static float *run(const apr_model *model, const kind *k, bool apart)
{
    const int64_t width = model->hparams.vocab_size;
    apr_session_options options = apr_session_defaults;
    float *const logits = malloc((size_t)((1 + STEPS) * ROWS * width) * sizeof *logits);
    apr_error err = {0};

    assert_non_null(logits);
    options.n_ctx = 64;
    options.n_batch = 32;
    options.n_sequences = ROWS;
    options.cuda = &counted;
    options.no_fusion = apart;
    apr_session *const s = must_open_session(model, &options);
    n_products = 0;
    for (int64_t i = 0; i < ROWS; i++) {
        int32_t ids[4];
        for (int64_t j = 0; j < 4; j++) ids[j] = (int32_t)((31 * i + 17 * j) % width);
        const apr_eval_output out = {.logits = logits + i * width};
        apr_session_use(s, i);
        if (apr_session_eval(s, ids, (size_t)(2 + i % 3), &out, &err) != APR_OK) fail_msg("%s", err.text);
    }
    /* also prompts, except their logits */
    assert_int_equal(n_products, apart || calls(k->products) == 0 ? 0 : ROWS * (calls(k->products) - 1));
    for (int64_t step = 0; step < STEPS; step++) {
        const apr_eval_output out = {.logits = logits + (1 + step) * ROWS * width};
        apr_sequence_token tokens[ROWS];
        for (int64_t r = 0; r < ROWS; r++) tokens[r] = (apr_sequence_token){r * 4 % ROWS, (int32_t)((7 * r + 3 * step) % width)};
        n_products = n_inputs = n_experts = 0;
        if (apr_session_step(s, tokens, ROWS, &out, &err) != APR_OK) fail_msg("%s", err.text);
        if (step < 2 && !apart) {
            assert_int_equal(n_products, calls(k->products));
            assert_int_equal(n_inputs, calls(k->inputs));
            assert_int_equal(n_experts, is_mixture(k) && go_together ? LAYERS : 0);
        } else {
            assert_int_equal(n_products + n_inputs + n_experts, 0); /* row by row; or what was recorded */
        }
    }
    apr_session_close(s);
    return logits;
}

static void compare(const kind *k)
{
    program_model m;
    open_model(&m, k);
    const size_t row = (size_t)m.model.hparams.vocab_size, n = (size_t)((1 + STEPS) * ROWS) * row;
    print_message("%s, %s, %lld and %lld wide\n", k->architecture, apr_dtypes[k->dtype].name, (long long)k->hidden, (long long)k->middle);
    float *const apart = run(&m.model, k, true), *const together = run(&m.model, k, false);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&apart[i], &together[i], sizeof *apart) != 0)
            fail_msg("step %zu, row %zu, logit %zu: %.9g together, %.9g apart", i / row / ROWS, i / row % ROWS, i % row,
                     (double)together[i], (double)apart[i]);
    free(apart);
    free(together);
    program_model_close(&m);
}

static void a_batch_has_the_same_bits_together_and_one_by_one(void **state)
{
    static const kind kinds[] = {
        {"llama", APR_Q4_K, 256, 512, 5, 2, false},    {"qwen2", APR_Q8_0, 1280, 256, 5, 2, false},
        {"qwen3", APR_F16, 256, 512, 5, 2, false},     {"gemma2", APR_Q6_K, 256, 512, 5, 4, false},
        {"llama", APR_BF16, 256, 512, 5, 2, false},    {"qwen3_moe", APR_MXFP4, 256, 512, 3, 2, false},
        {"qwen3_moe", APR_Q4_K, 256, 512, 3, 2, true}, {"qwen3_moe", APR_MXFP4, 288, 512, 3, 2, false}, /* rows are padded */
        {"qwen2", APR_Q8_0, 288, 160, 5, 2, false},    {"llama", APR_Q5_K, 256, 512, 0, 0, false},      /* no small GEMM */
    };
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) compare(&kinds[i]);
}

/* --- more rows than go together --- */

enum { MANY = 70 };

typedef struct rows_read {
    float *logits; /* [MANY, vocab] */
    int64_t width, n;
} rows_read;

static apr_status read_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    rows_read *const to = user;
    (void)err;
    assert_int_equal(first, to->n);
    memcpy(to->logits + first * to->width, logits, (size_t)(n_rows * to->width) * sizeof *logits);
    to->n += n_rows;
    return APR_OK;
}

static apr_status read_topk(void *user, int64_t row, const apr_topk *best, apr_error *err)
{
    int32_t *const ids = user;
    (void)err;
    ids[row] = best->ids[0];
    return APR_OK;
}

static apr_session *open_many(const apr_model *model)
{
    apr_session_options options = apr_session_defaults;
    options.n_ctx = 128;
    options.n_batch = 80;
    options.n_sequences = MANY;
    options.cuda = &counted;
    apr_session *const s = must_open_session(model, &options);
    for (int64_t i = 0; i < MANY; i++) {
        const int32_t ids[2] = {(int32_t)(i % model->hparams.vocab_size), 5};
        apr_error err = {0};
        apr_session_use(s, i);
        if (apr_session_eval(s, ids, 2, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    }
    return s;
}

static void rows_beyond_those_that_go_together_are_run_in_parts(void **state)
{
    static const kind k = {"llama", APR_Q4_K, 256, 256, 5, 2, false};
    program_model m;
    apr_error err = {0};
    (void)state;
    open_model(&m, &k);
    const int64_t width = m.model.hparams.vocab_size;
    rows_read all = {.logits = malloc((size_t)(MANY * width) * sizeof(float)), .width = width};
    float *const alone = malloc((size_t)width * sizeof *alone);
    apr_topk *const bests = calloc(MANY, sizeof *bests);
    int32_t ids[MANY];
    apr_sequence_token tokens[MANY];

    assert_true(all.logits != NULL && alone != NULL && bests != NULL);
    for (int64_t r = 0; r < MANY; r++) tokens[r] = (apr_sequence_token){r, (int32_t)(3 * r % width)};
    for (int64_t r = 0; r < MANY; r++) bests[r].n_wanted = 1;
    apr_session *s = open_many(&m.model);
    n_products = 0;
    if (apr_session_step(s, tokens, MANY, &(apr_eval_output){.on_logits = read_rows, .user = &all}, &err) != APR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(all.n, MANY);
    assert_int_equal(n_products, 2 * calls(k.products)); /* 35 and 35 */
    apr_session_close(s);
    s = open_many(&m.model);
    if (apr_session_step(s, tokens, MANY, &(apr_eval_output){.best = bests, .on_topk = read_topk, .user = ids}, &err) != APR_OK)
        fail_msg("%s", err.text);
    for (int64_t r = 0; r < MANY; r++) assert_int_equal(ids[r], apr_argmax(all.logits + r * width, width));
    apr_session_close(s);
    s = open_many(&m.model);
    for (int64_t r = 0; r < MANY; r += 23) {
        if (apr_session_step(s, &tokens[r], 1, &(apr_eval_output){.logits = alone}, &err) != APR_OK) fail_msg("%s", err.text);
        assert_memory_equal(alone, all.logits + r * width, (size_t)width * sizeof *alone);
    }
    apr_session_close(s);
    free(all.logits);
    free(alone);
    free(bests);
    program_model_close(&m);
}

/* Whether the code that this device runs is for 9.0 or later: the newest in the library that is not newer than the device. */
static bool has_code_for_90(const apr_cuda_facts *facts)
{
    int newest = 0, at = 0, n;
    for (const char *c = cuda->architectures; sscanf(c, "%d%n", &at, &n) == 1; c += n)
        if (at <= 10 * facts->major + facts->minor && at > newest) newest = at;
    return newest >= 90;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_batch_has_the_same_bits_together_and_one_by_one),
                                       cmocka_unit_test(rows_beyond_those_that_go_together_are_run_in_parts)};
    apr_cuda_facts facts;
    int n_devices;
    apr_error err = {0};

    setenv("APR_EMULATED_SMS", "64", 0); /* a stage for each: so products add in the same order together and row by row */
    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n_devices, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    go_together = cuda->facts(0, &facts, NULL) == APR_OK && has_code_for_90(&facts);
    counted = *cuda;
    counted.rows = count_rows;
    counted.rows_inputs = count_inputs;
    counted.rows_experts = count_experts;
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
