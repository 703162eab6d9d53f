/* runtime/session/session.h, generate.h, evaluate.h: the bundled models do what transformers computed with them. */
#include "runtime/session/evaluate.h"
#include "runtime/session/generate.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/support/golden_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char tiny_qwen2[] = "tests/data/tiny-qwen2";
static const char *const all_models[] = {tiny_qwen2, "tests/data/tiny-llama"};

static void open_golden(golden *g, const char *dir)
{
    apr_error err = {0};
    if (golden_open(g, dir, &err) != APR_OK) fail_msg("%s", err.text);
}

static apr_session *open_session(const apr_model *model, const apr_session_options *options)
{
    apr_error err = {0};
    apr_session *session;
    if (apr_session_open(&session, model, options, &err) != APR_OK) fail_msg("%s", err.text);
    return session;
}

/* Hidden states and logits of the first 64 tokens of heldout.txt, evaluated in batches of `n_batch`. */
static void compare_with_golden(const golden *g, const apr_session_options *options, double bound)
{
    apr_session *const s = open_session(&g->model, options);
    const apr_program *const p = apr_session_program(s);
    const apr_tensor *const ids = apr_model_find(&g->outputs, "ids");
    int32_t tokens[64];
    const size_t n_logits = 64 * (size_t)p->vocab_size, n_hidden = p->n_taps * 64 * (size_t)p->hidden_size;
    float *const logits = malloc(n_logits * sizeof *logits), *const hidden = malloc(n_hidden * sizeof *hidden);
    const apr_eval_output out = {.all_logits = true, .logits = logits, .hidden = hidden};
    apr_error err = {0};

    assert_non_null(ids);
    for (int i = 0; i < 64; i++) /* int32 or int64, little-endian */
        tokens[i] = (int32_t)apr_load_le32(ids->data + (size_t)i * (size_t)(ids->n_bytes / 64));
    if (apr_session_eval(s, tokens, 64, &out, &err) != APR_OK) fail_msg("%s", err.text);
    const double hidden_off = largest_difference(hidden, golden_floats(g, "hidden", (int64_t)n_hidden), n_hidden);
    const double logits_off = largest_difference(logits, golden_floats(g, "logits", (int64_t)n_logits), n_logits);
    print_message("%s: largest difference of hidden states %.2e, of logits %.2e\n", g->model.path, hidden_off, logits_off);
    assert_true(hidden_off < bound);
    assert_true(logits_off < bound);
    assert_int_equal(apr_session_position(s), 64);
    free(logits);
    free(hidden);
    apr_session_close(s);
}

static void hidden_states_and_logits_are_those_of_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_models / sizeof *all_models; i++) {
        golden g;
        apr_session_options options = apr_session_defaults;
        open_golden(&g, all_models[i]);
        options.kv_dtype = APR_F32;
        compare_with_golden(&g, &options, 2e-3); /* float32 sums in another order */
        options.n_batch = 7;
        options.n_logits = 3;
        compare_with_golden(&g, &options, 2e-3);
        options.backend = &apr_ref_backend;
        compare_with_golden(&g, &options, 2e-3);
        golden_close(&g);
    }
}

typedef struct collected {
    int32_t ids[64];
    size_t n;
} collected;

static bool collect(void *user, int32_t id, bool is_stop)
{
    collected *const c = user;
    (void)is_stop;
    assert_true(c->n < sizeof c->ids / sizeof *c->ids);
    c->ids[c->n++] = id;
    return true;
}

static void check_prompt(apr_session *s, const apr_model *model, const cJSON *prompt)
{
    const double margin = cJSON_GetObjectItemCaseSensitive(prompt, "greedy_min_margin")->valuedouble;
    size_t n_prompt, n_greedy;
    int32_t *const ids = golden_ids(cJSON_GetObjectItemCaseSensitive(prompt, "ids"), &n_prompt);
    int32_t *const greedy = golden_ids(cJSON_GetObjectItemCaseSensitive(prompt, "greedy_ids"), &n_greedy);
    collected c = {.n = 0};
    const apr_generate_options options = {
        .max_tokens = 48, .stop_ids = model->vocab.stop_ids, .n_stop_ids = model->vocab.n_stop_ids, .on_token = collect, .user = &c};
    apr_generation result;
    apr_sampler sampler;
    apr_error err = {0};

    apr_session_reset(s);
    assert_int_equal(apr_sampler_open(&sampler, apr_session_program(s)->vocab_size, &(apr_sample_options){0}, &err), APR_OK);
    if (apr_generate(s, &sampler, ids, n_prompt, &options, &result, &err) != APR_OK) fail_msg("%s", err.text);
    if (margin > 0.02) { /* below, another order of summation may differ */
        assert_int_equal(c.n, n_greedy);
        assert_memory_equal(c.ids, greedy, n_greedy * sizeof *greedy);
        assert_int_equal(result.finish, n_greedy < 48 || apr_finish_name(result.finish)[0] == 's' ? APR_FINISH_STOP : APR_FINISH_LIMIT);
    }
    apr_sampler_close(&sampler);
    free(ids);
    free(greedy);
}

static void greedy_continuations_are_those_of_transformers(void **state)
{
    (void)state;
    golden g;
    const cJSON *prompt;
    int n = 0;

    open_golden(&g, tiny_qwen2);
    apr_session *const s = open_session(&g.model, &apr_session_defaults);
    cJSON_ArrayForEach(prompt, cJSON_GetObjectItemCaseSensitive(g.json, "prompts"))
    {
        check_prompt(s, &g.model, prompt);
        n++;
    }
    assert_true(n >= 4);
    apr_session_close(s);
    golden_close(&g);
}

static void the_perplexity_of_the_held_out_text_is_that_of_transformers(void **state)
{
    (void)state;
    apr_error err = {0};
    golden g;
    apr_map text;
    apr_tokenizer *tokenizer;
    int32_t *ids;
    size_t n_ids;
    apr_perplexity result;

    open_golden(&g, tiny_qwen2);
    const cJSON *const want = cJSON_GetObjectItemCaseSensitive(g.json, "heldout");
    assert_int_equal(apr_map_open(&text, "tests/data/heldout.txt", &err), APR_OK);
    if (apr_tokenizer_open(&tokenizer, &g.model.vocab, &err) != APR_OK) fail_msg("%s", err.text);
    const apr_encode_options encode = {0};
    if (apr_tokenizer_encode(tokenizer, (const char *)text.data, text.n_bytes, &encode, &ids, &n_ids, &err) != APR_OK)
        fail_msg("%s", err.text);
    apr_session *const s = open_session(&g.model, &apr_session_defaults);

    if (apr_evaluate_perplexity(s, ids, n_ids, 256, NULL, NULL, &result, &err) != APR_OK) fail_msg("%s", err.text);
    const double wanted = cJSON_GetObjectItemCaseSensitive(want, "perplexity")->valuedouble;
    print_message("perplexity %.6f, transformers %.6f\n", result.perplexity, wanted);
    assert_int_equal(n_ids, (int64_t)cJSON_GetObjectItemCaseSensitive(want, "tokens")->valuedouble);
    assert_int_equal(result.n_scored, (int64_t)cJSON_GetObjectItemCaseSensitive(want, "tokens_scored")->valuedouble);
    assert_true(fabs(result.perplexity / wanted - 1.0) < 5e-4);

    assert_int_equal(apr_evaluate_perplexity(s, ids, 255, 256, NULL, NULL, &result, &err), APR_E_USAGE);
    apr_session_close(s);
    apr_tokenizer_close(tokenizer);
    apr_map_close(&text);
    free(ids);
    golden_close(&g);
}

static void what_is_allocated_is_what_was_planned(void **state)
{
    (void)state;
    golden g;
    open_golden(&g, tiny_qwen2);
    apr_session *const s = open_session(&g.model, &apr_session_defaults);
    const apr_plan *const plan = apr_session_plan(s);
    const apr_session_usage used = apr_session_used(s);
    uint64_t tensors = 0;

    for (size_t i = 0; i < g.model.n_tensors; i++) tensors += (g.model.tensors[i].n_bytes + 63) / 64 * 64;
    assert_int_equal(used.weights, tensors);
    assert_true(apr_session_check_memory(s).as_planned); /* test_session_memory has more about it */
    assert_int_equal(plan->n_ctx, 1024);
    const uint64_t states = 2 * 2 * 1024 * 2 * 64 * 2; /* layers, k and v, positions, heads, numbers, bytes */
    assert_int_equal(plan->states_bytes, states);
    assert_true(used.states >= states && used.states < states + 8192); /* whole pages */
    apr_session_close(s);
    golden_close(&g);
}

static void a_full_context_is_refused_and_a_reset_frees_it(void **state)
{
    (void)state;
    golden g;
    apr_error err = {0};
    apr_session_options options = apr_session_defaults;
    const int32_t ids[17] = {40, 77, 258};

    open_golden(&g, tiny_qwen2);
    options.n_ctx = 16;
    apr_session *const s = open_session(&g.model, &options);
    assert_int_equal(apr_session_eval(s, ids, 17, NULL, &err), APR_E_NO);
    assert_int_equal(apr_session_position(s), 0);
    assert_int_equal(apr_session_eval(s, ids, 16, NULL, NULL), APR_OK);
    const float first = apr_session_logits(s)[5];
    assert_int_equal(apr_session_eval(s, ids, 1, NULL, NULL), APR_E_NO);
    assert_int_equal(apr_session_eval(s, ids, 0, NULL, NULL), APR_OK);
    apr_session_reset(s);
    assert_int_equal(apr_session_eval(s, ids, 16, NULL, NULL), APR_OK);
    assert_true(first == apr_session_logits(s)[5]);
    apr_session_reset(s);
    assert_int_equal(apr_session_eval(s, &(int32_t){2048}, 1, NULL, NULL), APR_E_USAGE);
    assert_int_equal(apr_session_eval(s, &(int32_t){-1}, 1, NULL, NULL), APR_E_USAGE);
    apr_session_close(s);
    golden_close(&g);
}

/* A copy of the model whose tensors can be changed. */
static apr_status open_changed(const apr_model *model, size_t tensor, void (*change)(apr_tensor *tensor), apr_error *err)
{
    apr_model copy = *model;
    apr_session *session;
    apr_tensor *const tensors = malloc(model->n_tensors * sizeof *tensors);

    assert_non_null(tensors);
    memcpy(tensors, model->tensors, model->n_tensors * sizeof *tensors);
    change(&tensors[tensor]);
    copy.tensors = tensors;
    copy.index = NULL;
    copy.arena = (apr_arena){0};
    assert_int_equal(apr_model_index_names(&copy, NULL), APR_OK);
    const apr_status status = apr_session_open(&session, &copy, &apr_session_defaults, err);
    apr_session_close(session);
    apr_arena_close(&copy.arena);
    free(tensors);
    return status;
}

static void rename_it(apr_tensor *tensor) { tensor->name = "something.else"; }
static void misname_it(apr_tensor *tensor) { tensor->name = "model.layers.1.mlp.something.weight"; }
static void move_it_after_the_last_layer(apr_tensor *tensor) { tensor->name = "model.layers.7.mlp.up_proj.weight"; }
static void transpose_it(apr_tensor *tensor)
{
    const int64_t rows = tensor->dims[0];
    tensor->dims[0] = tensor->dims[1];
    tensor->dims[1] = rows;
}
static void make_it_an_integer(apr_tensor *tensor) { tensor->dtype = APR_I16; }

static void a_model_that_does_not_match_is_refused_with_the_tensor_s_name(void **state)
{
    (void)state;
    static const struct {
        void (*change)(apr_tensor *tensor);
        apr_status status;
        const char *part_of_sentence;
    } cases[] = {
        {rename_it, APR_E_DAMAGED, "'model.layers.1.mlp.down_proj.weight' is missing"},
        {transpose_it, APR_E_DAMAGED,
         "'model.layers.1.mlp.down_proj.weight' has shape [512, 256], but the hyperparameters give [256, 512]"},
        {make_it_an_integer, APR_E_UNSUPPORTED, "i16, which cannot be run as weights"},
    };
    golden g;
    open_golden(&g, tiny_qwen2);
    const apr_tensor *const down = apr_model_find(&g.model, "model.layers.1.mlp.down_proj.weight");
    assert_non_null(down);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        assert_int_equal(open_changed(&g.model, (size_t)(down - g.model.tensors), cases[i].change, &err), cases[i].status);
        if (strstr(err.text, cases[i].part_of_sentence) == NULL) fail_msg("unexpected: %s", err.text);
    }
    /* a tensor that the program does not know, or of a layer too many */
    const apr_tensor *const bias = apr_model_find(&g.model, "model.layers.1.self_attn.q_proj.bias");
    apr_error err = {0};
    assert_non_null(bias);
    g.model.hparams.architecture = "llama"; /* there, biases may be missing */
    assert_int_equal(open_changed(&g.model, (size_t)(bias - g.model.tensors), misname_it, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no place in a llama model"));
    err = (apr_error){0};
    assert_int_equal(open_changed(&g.model, (size_t)(bias - g.model.tensors), move_it_after_the_last_layer, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "belongs to layer 7"));
    golden_close(&g);
}

static void what_does_not_fit_or_is_not_known_is_refused(void **state)
{
    (void)state;
    golden g;
    apr_error err = {0};
    apr_session *s;
    apr_session_options options = apr_session_defaults;

    open_golden(&g, tiny_qwen2);
    options.budget_bytes = 4 << 20;
    assert_int_equal(apr_session_open(&s, &g.model, &options, &err), APR_E_MEMORY);
    assert_null(s);
    assert_non_null(strstr(err.text, "goes over it"));
    g.model.naming = APR_NAMING_GGML;
    assert_int_equal(apr_session_open(&s, &g.model, &apr_session_defaults, NULL), APR_E_USAGE);
    err = (apr_error){0};
    g.model.hparams.architecture = "mamba";
    assert_int_equal(apr_session_open(&s, &g.model, &apr_session_defaults, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'mamba'"));
    assert_non_null(strstr(err.text, "needs a selective scan"));
    golden_close(&g);
}

/* Logits of 64 tokens, malloc'ed. */
static float *logits_of(const apr_model *model, int64_t n_batch, const apr_backend *backend)
{
    apr_session_options options = apr_session_defaults;
    int32_t ids[64];
    float *const logits = malloc(64 * 2048 * sizeof *logits);
    apr_error err = {0};

    assert_non_null(logits);
    for (int i = 0; i < 64; i++) ids[i] = (i * 37 + 11) % 2000;
    options.kv_dtype = APR_F32;
    options.n_batch = n_batch;
    options.backend = backend;
    apr_session *const s = open_session(model, &options);
    const apr_eval_output out = {.all_logits = true, .logits = logits};
    if (apr_session_eval(s, ids, 64, &out, &err) != APR_OK) fail_msg("%s", err.text);
    apr_session_close(s);
    return logits;
}

static void a_sliding_window_gives_the_same_in_batches_of_any_size(void **state)
{
    (void)state;
    static const uint8_t kinds[2] = {APR_LAYER_SLIDING, APR_LAYER_FULL};
    static const int64_t batches[] = {64, 16, 7, 1}; /* of 10 + batch cells: the ring wraps around */
    golden g;
    open_golden(&g, tiny_qwen2);
    float *const full = logits_of(&g.model, 64, NULL);
    g.model.hparams.layer_kinds = kinds;
    g.model.hparams.sliding_window = 10;
    float *const reference = logits_of(&g.model, 64, &apr_ref_backend);

    assert_true(largest_difference(full, reference, 10 * 2048) < 1e-4); /* inside the window nothing changes */
    assert_true(largest_difference(full, reference, 64 * 2048) > 0.1);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        float *const logits = logits_of(&g.model, batches[i], NULL);
        assert_true(largest_difference(logits, reference, 64 * 2048) < 1e-4);
        free(logits);
    }
    free(full);
    free(reference);
    golden_close(&g);
}

static void rope_freqs_of_two_are_linear_scaling_by_two(void **state)
{
    (void)state;
    float divisors[32];
    golden g;
    open_golden(&g, tiny_qwen2);
    apr_model copy = g.model;
    copy.arena = (apr_arena){0};
    copy.index = NULL;
    copy.tensors = malloc((g.model.n_tensors + 1) * sizeof *copy.tensors);
    assert_non_null(copy.tensors);
    memcpy(copy.tensors, g.model.tensors, g.model.n_tensors * sizeof *copy.tensors);
    for (int i = 0; i < 32; i++) divisors[i] = 2.0f;
    copy.tensors[copy.n_tensors++] = (apr_tensor){.name = "rope_freqs.weight",
                                                  .dtype = APR_F32,
                                                  .rank = 1,
                                                  .dims = {32},
                                                  .data = (const uint8_t *)divisors,
                                                  .n_bytes = sizeof divisors};
    assert_int_equal(apr_model_index_names(&copy, NULL), APR_OK);

    float *const plain = logits_of(&g.model, 64, NULL), *const divided = logits_of(&copy, 64, NULL);
    g.model.hparams.rope = (apr_rope_scaling){.kind = APR_ROPE_LINEAR, .factor = 2.0};
    float *const scaled = logits_of(&g.model, 64, NULL);
    assert_true(largest_difference(divided, scaled, 64 * 2048) == 0.0);
    assert_true(largest_difference(divided, plain, 64 * 2048) > 0.01);
    free(plain);
    free(divided);
    free(scaled);
    free(copy.tensors);
    apr_arena_close(&copy.arena);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_states_and_logits_are_those_of_transformers),
        cmocka_unit_test(greedy_continuations_are_those_of_transformers),
        cmocka_unit_test(the_perplexity_of_the_held_out_text_is_that_of_transformers),
        cmocka_unit_test(what_is_allocated_is_what_was_planned),
        cmocka_unit_test(a_full_context_is_refused_and_a_reset_frees_it),
        cmocka_unit_test(a_model_that_does_not_match_is_refused_with_the_tensor_s_name),
        cmocka_unit_test(a_sliding_window_gives_the_same_in_batches_of_any_size),
        cmocka_unit_test(rope_freqs_of_two_are_linear_scaling_by_two),
        cmocka_unit_test(what_does_not_fit_or_is_not_known_is_refused),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
