/* runtime/session/session.h: sessions of every family that has a program, with weights of noise: a prompt is its tokens one by one, the
 * host is the reference, a reset forgets; matrices that are made of others, and what a device is given, are the same matrices. */
#include "formats/base/bytes.h"
#include "runtime/program/ability.h"
#include "runtime/session/trace.h"
#include "tests/support/fake_device.h"
#include "tests/support/program_model.h"
#include "tests/support/sanitizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* More than recurrent operations take together, a window, and a chunk. */
enum { N_TOKENS = 70, N_CTX = 80 };

static int32_t ids[N_TOKENS];

static int make_text(void **state)
{
    (void)state;
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (i * 37 + i * i) % 96;
    return 0;
}

static apr_session *open_session(const apr_model *model, const apr_backend *backend, const apr_cuda_api *cuda)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_session *s;
    options.n_ctx = N_CTX;
    options.n_threads = 2;
    options.kv_dtype = APR_F32;
    options.backend = backend;
    options.cuda = cuda;
    if (apr_session_open(&s, model, &options, &err) != APR_OK) fail_msg("%s: %s", model->hparams.architecture, err.text);
    return s;
}

/* Logits of all tokens, `at_once` of them together; to be freed. */
static float *logits_of(apr_session *s, int at_once)
{
    const size_t width = (size_t)apr_session_program(s)->vocab_size;
    float *const logits = malloc(N_TOKENS * width * sizeof *logits);
    apr_error err = {0};

    assert_non_null(logits);
    for (int first = 0; first < N_TOKENS; first += at_once) {
        const apr_eval_output out = {.all_logits = true, .logits = logits + (size_t)first * width};
        const int n = N_TOKENS - first < at_once ? N_TOKENS - first : at_once;
        if (apr_session_eval(s, ids + first, (size_t)n, &out, &err) != APR_OK) fail_msg("%s", err.text);
    }
    return logits;
}

/* The largest difference, over the largest number; both are finite. */
static double distance(const float *a, const float *b)
{
    double most = 1e-30, off = 0.0;
    for (int i = 0; i < N_TOKENS * 96; i++) {
        assert_true(isfinite(a[i]) && isfinite(b[i]));
        most = fmax(most, fabs((double)b[i]));
        off = fmax(off, fabs((double)a[i] - (double)b[i]));
    }
    return off / most;
}

/* --- every family --- */

typedef void (*family_check)(program_model *m, const char *what);

/* A layer that mixes tokens in this way, with the first of the feed-forwards that the family has. */
static bool with_layer(const char *architecture, uint8_t mixer, apr_dtype dtype, family_check check)
{
    static const uint8_t orders[2][3] = {{APR_FFN_EXPERTS, APR_FFN_DENSE, APR_FFN_NONE}, {APR_FFN_DENSE, APR_FFN_EXPERTS, APR_FFN_NONE}};
    for (int i = 0; i < 3; i++) {
        const uint8_t *const ffn = &orders[mixer % 2][i];
        apr_hparams h = program_model_sizes(architecture);
        program_model m;
        char what[96];
        h.num_layers = 1;
        h.layer_kinds = &mixer;
        h.ffn_kinds = ffn;
        if (*ffn != APR_FFN_EXPERTS) h.num_experts = 0;
        if (program_model_open(&m, &h, dtype, NULL) != APR_OK) continue;
        snprintf(what, sizeof what, "%s, a layer of kind %d, feed-forward %d", architecture, mixer, *ffn);
        check(&m, what);
        program_model_close(&m);
        return true;
    }
    return false;
}

/* Each way to mix tokens that a family has. */
static int with_layers(const char *architecture, apr_dtype dtype, family_check check)
{
    int n = 0;
    for (uint8_t mixer = 0; mixer <= APR_LAYER_NONE; mixer++) n += with_layer(architecture, mixer, dtype, check);
    return n;
}

/* Under a sanitizer every third family from `first` on: the tests below then see each family at least once. */
static void with_families(apr_dtype dtype, size_t first, family_check check)
{
    const size_t step = APR_HAS_SANITIZER ? 3 : 1;
    size_t n_families = 0;
    for (size_t i = first % step; i < apr_n_families; i += step) {
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        if (with_layers(apr_families[i]->types[0].name, dtype, check) == 0) fail_msg("%s: no layers at all", apr_families[i]->name);
        n_families++;
    }
    assert_true(n_families >= 30 / step);
}

static void check_host(program_model *m, const char *what)
{
    apr_session *const ref = open_session(&m->model, &apr_ref_backend, NULL), *const host = open_session(&m->model, NULL, NULL);
    float *const reference = logits_of(ref, N_TOKENS), *const prompt = logits_of(host, N_TOKENS);

    if (!(distance(prompt, reference) < 1e-4)) fail_msg("%s: host and reference differ by %g", what, distance(prompt, reference));
    apr_session_reset(host);
    float *const again = logits_of(host, N_TOKENS);
    assert_memory_equal(again, prompt, N_TOKENS * 96 * sizeof *prompt);
    apr_session_reset(host);
    float *const stepped = logits_of(host, 1);
    if (!(distance(stepped, prompt) < 1e-4)) fail_msg("%s: a prompt differs from its tokens by %g", what, distance(stepped, prompt));
    free(reference);
    free(prompt);
    free(again);
    free(stepped);
    apr_session_close(ref);
    apr_session_close(host);
}

static void a_prompt_is_its_tokens_and_a_reset_forgets_them(void **state)
{
    (void)state;
    with_families(APR_F32, 0, check_host);
}

/* A sum's order does not depend on the number of tokens; recurrent layers and attention go token by token anyway. */
static void check_float64(program_model *m, const char *what)
{
    apr_session *const ref = open_session(&m->model, &apr_ref_backend, NULL), *const s =
                                                                                  open_session(&m->model, &apr_float64_backend, NULL);
    float *const reference = logits_of(ref, N_TOKENS), *const prompt = logits_of(s, N_TOKENS);

    if (!(distance(prompt, reference) < 2e-5)) fail_msg("%s: float64 and ref differ by %g", what, distance(prompt, reference));
    apr_session_reset(s);
    float *const stepped = logits_of(s, 1);
    assert_memory_equal(stepped, prompt, N_TOKENS * 96 * sizeof *prompt);
    free(reference);
    free(prompt);
    free(stepped);
    apr_session_close(ref);
    apr_session_close(s);
}

static void float64_is_ref_and_a_prompt_has_the_bits_of_its_tokens(void **state)
{
    (void)state;
    with_families(APR_F32, 1, check_float64);
    with_families(APR_Q8_0, 2, check_float64);
}

/* --- matrices that are not stored as they are multiplied --- */

static uint64_t line_bytes(const apr_session *s, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(apr_session_plan(s), id);
    return line != NULL ? line->bytes : 0;
}

static uint64_t all_weights(const apr_session *s)
{
    uint64_t n = 0;
    for (int role = 0; role < APR_ROLE_COUNT; role++) n += line_bytes(s, (apr_line_id)(APR_LINE_WEIGHTS_EMBEDDING + role));
    return n;
}

static void check_materialised(program_model *m, const char *what)
{
    apr_model view;
    apr_session *const plain = open_session(&m->model, NULL, NULL);

    assert_int_equal(program_model_transposed(&view, m, NULL), APR_OK);
    apr_session *const made = open_session(&view, NULL, NULL);
    float *const reference = logits_of(plain, N_TOKENS), *const logits = logits_of(made, N_TOKENS);
    if (memcmp(reference, logits, N_TOKENS * 96 * sizeof *reference) != 0) fail_msg("%s: matrices in order are other matrices", what);
    assert_true(line_bytes(made, APR_LINE_MATERIALISED) > 0);
    assert_int_equal(line_bytes(made, APR_LINE_MATERIALISED) + all_weights(made), all_weights(plain));
    assert_int_equal(line_bytes(plain, APR_LINE_MATERIALISED), 0);
    assert_int_equal(apr_session_used(made).weights, all_weights(made));
    assert_true(apr_session_check_memory(made).as_planned || apr_session_check_memory(made).measured == UINT64_MAX);
    free(reference);
    free(logits);
    apr_session_close(plain);
    apr_session_close(made);
    apr_model_close(&view);
}

static void composed_matrices_are_stored_in_order_in_their_own_memory(void **state)
{
    (void)state;
    static const char *const families[] = {"llama", "gpt_oss", "deepseek_v3", "deepseek_v32", "qwen3_next", "nemotron_h"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) assert_true(with_layers(families[i], APR_BF16, check_materialised) > 0);
}

/* --- a device --- */

/* The lines of the plan that are allocated there one by one. */
static uint64_t device_lines(const apr_session *s)
{
    static const apr_line_id lines[] = {APR_LINE_CUBLAS_WORKSPACE, APR_LINE_FILLED, APR_LINE_COPIES,   APR_LINE_F32_VECTORS,
                                        APR_LINE_ACTIVATIONS,      APR_LINE_LOGITS, APR_LINE_WORKSPACE};
    uint64_t n = all_weights(s) + apr_session_plan(s)->states_bytes;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) n += line_bytes(s, lines[i]);
    return n;
}

static void check_device(program_model *m, const char *what)
{
    apr_model view;
    apr_session *const ref = open_session(&m->model, &apr_ref_backend, NULL);
    float *const reference = logits_of(ref, N_TOKENS);

    assert_int_equal(program_model_transposed(&view, m, NULL), APR_OK);
    for (int is_made = 0; is_made < 2; is_made++) {
        apr_session *const s = open_session(is_made ? &view : &m->model, NULL, fake_device());
        float *const logits = logits_of(s, N_TOKENS);
        if (memcmp(reference, logits, N_TOKENS * 96 * sizeof *reference) != 0) fail_msg("%s: the device has other weights", what);
        assert_int_equal(fake_device_bytes(), device_lines(s));
        apr_session_reset(s);
        float *const again = logits_of(s, N_TOKENS);
        assert_memory_equal(again, logits, N_TOKENS * 96 * sizeof *logits);
        free(logits);
        free(again);
        apr_session_close(s);
    }
    free(reference);
    apr_session_close(ref);
    apr_model_close(&view);
}

static void a_device_gets_the_same_weights_and_what_the_plan_says(void **state)
{
    (void)state;
    with_families(APR_BF16, 1, check_device);
}

/* Q8_0 without a kernel: FP16 of the same numbers, which differ by at most a bit more. */
static void check_decoded(program_model *m, const char *what)
{
    apr_session *const ref = open_session(&m->model, &apr_ref_backend, NULL);
    float *const reference = logits_of(ref, N_TOKENS);
    for (int takes = 0; takes < 2; takes++) {
        fake_device_takes_q8_0(takes != 0);
        apr_session *const s = open_session(&m->model, NULL, fake_device());
        float *const logits = logits_of(s, N_TOKENS);
        if (!(distance(logits, reference) <= (takes ? 0.0 : 0.02))) fail_msg("%s: off by %g", what, distance(logits, reference));
        assert_int_equal(fake_device_bytes(), device_lines(s));
        free(logits);
        apr_session_close(s);
    }
    free(reference);
    apr_session_close(ref);
}

static void what_has_no_kernel_is_decoded_expert_by_expert(void **state)
{
    (void)state;
    assert_true(with_layers("qwen3_moe", APR_Q8_0, check_decoded) > 0);
    assert_true(with_layers("deepseek_v2", APR_Q8_0, check_decoded) > 0);
}

/* In the middle of the text: what was remembered there is computed once more on the host, experts and states among it. */
static void check_fall_back(program_model *m, const char *what)
{
    apr_session_options options = apr_session_defaults;
    apr_session *const ref = open_session(&m->model, &apr_ref_backend, NULL), *s;
    float *const reference = logits_of(ref, N_TOKENS);

    options.n_ctx = N_CTX;
    options.kv_dtype = APR_F32;
    options.cuda = fake_device();
    options.fall_back = true;
    assert_int_equal(apr_session_open(&s, &m->model, &options, NULL), APR_OK);
    fake_device_fail_after(3 * (int64_t)m->program.n_ops / 2); /* in the second of the batches */
    float *const logits = logits_of(s, 30);
    fake_device_fail_after(-1);
    assert_string_equal(apr_session_backend_name(s), "host");
    if (!(distance(logits, reference) < 1e-4)) fail_msg("%s: off by %g after the device failed", what, distance(logits, reference));
    assert_true(apr_session_check_memory(s).as_planned || apr_session_check_memory(s).measured == UINT64_MAX);
    free(reference);
    free(logits);
    apr_session_close(s);
    apr_session_close(ref);
}

static void a_device_that_fails_is_left_with_experts_and_states(void **state)
{
    (void)state;
    static const char *const families[] = {"qwen3_moe", "qwen3_next", "nemotron_h", "deepseek_v3", "deepseek_v32"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) assert_true(with_layers(families[i], APR_BF16, check_fall_back) > 0);
}

/* --- caches that are rings --- */

/* In batches of 8, so that the cells of windows and chunks are fewer than the positions. */
static void check_rings(program_model *m, const char *what)
{
    apr_session *const ref = open_session(&m->model, &apr_ref_backend, NULL);
    float *const reference = logits_of(ref, N_TOKENS);
    for (int on_device = 0; on_device < 2; on_device++) {
        apr_session_options options = apr_session_defaults;
        apr_session *s;
        options.n_ctx = N_CTX;
        options.n_batch = 8;
        options.n_threads = 2;
        options.kv_dtype = APR_F32;
        options.cuda = on_device ? fake_device() : NULL;
        assert_int_equal(apr_session_open(&s, &m->model, &options, NULL), APR_OK);
        assert_true(apr_session_plan(s)->state_cells[0] < N_TOKENS);
        float *const logits = logits_of(s, N_TOKENS);
        if (!(distance(logits, reference) < 1e-4)) fail_msg("%s: a ring of cells is off by %g", what, distance(logits, reference));
        free(logits);
        apr_session_close(s);
    }
    free(reference);
    apr_session_close(ref);
}

static void windows_and_chunks_need_the_cells_that_stay_visible(void **state)
{
    (void)state;
    assert_true(with_layer("gpt_oss", APR_LAYER_SLIDING, APR_F32, check_rings));
    assert_true(with_layer("gemma4_text", APR_LAYER_SLIDING, APR_F32, check_rings));
    assert_true(with_layer("llama4_text", APR_LAYER_CHUNKED, APR_F32, check_rings));
}

/* --- tables on the host --- */

/* Every value of the tokens' first operations is on the device what it is on the host, though the largest table is not there. */
static void check_rows(const program_model *m, apr_session *host, apr_session *device)
{
    float *const rows[2] = {malloc(N_TOKENS * 4096 * sizeof(float)), malloc(N_TOKENS * 4096 * sizeof(float))};
    int n_from_host = 0;

    assert_true(rows[0] != NULL && rows[1] != NULL);
    assert_int_equal(apr_trace_begin(host, ids, 16, NULL), APR_OK);
    assert_int_equal(apr_trace_begin(device, ids, 16, NULL), APR_OK);
    for (size_t i = 0; i < m->program.n_ops; i++) {
        const apr_op *const op = &m->program.ops[i];
        assert_int_equal(apr_trace_run(host, i, NULL), APR_OK);
        assert_int_equal(apr_trace_run(device, i, NULL), APR_OK);
        if (op->kind != APR_OP_EMBED) continue;
        assert_true(m->program.values[op->out].width <= 4096);
        assert_int_equal(apr_trace_read(host, op->out, rows[0], NULL), APR_OK);
        assert_int_equal(apr_trace_read(device, op->out, rows[1], NULL), APR_OK);
        assert_memory_equal(rows[0], rows[1], (size_t)(16 * m->program.values[op->out].width) * sizeof(float));
        n_from_host += apr_slot_is_read_on_host(&m->program.weights[op->weight[0]]);
    }
    assert_int_equal(n_from_host, 1);
    free(rows[0]);
    free(rows[1]);
}

static void check_host_table(program_model *m, const char *what)
{
    apr_session *const host = open_session(&m->model, NULL, NULL), *const device = open_session(&m->model, NULL, fake_device());
    const apr_tensor *const table = apr_model_find(&m->model, "model.embed_tokens_per_layer.weight");

    (void)what;
    assert_non_null(table);
    assert_int_equal(line_bytes(host, APR_LINE_HOST_TABLES), 0);
    assert_int_equal(line_bytes(device, APR_LINE_HOST_TABLES), apr_pad64(table->n_bytes));
    assert_int_equal(line_bytes(device, APR_LINE_WEIGHTS_EMBEDDING) + apr_pad64(table->n_bytes),
                     line_bytes(host, APR_LINE_WEIGHTS_EMBEDDING));
    assert_int_equal(line_bytes(device, APR_LINE_HOST_ROWS), N_CTX * table->dims[1] * 4);
    check_rows(m, host, device);
    apr_session_close(host);
    apr_session_close(device);
}

static void a_table_that_stays_on_the_host_is_read_there(void **state)
{
    (void)state;
    assert_true(with_layer("gemma4_text", APR_LAYER_FULL, APR_Q8_0, check_host_table));
}

/* --- refusals --- */

static apr_hparams two_of_experts(void)
{
    static const uint8_t ffns[2] = {APR_FFN_EXPERTS, APR_FFN_EXPERTS};
    apr_hparams h = program_model_sizes("qwen3_moe");
    h.ffn_kinds = ffns;
    return h;
}

static void experts_of_one_layer_must_be_of_one_type_and_all_there(void **state)
{
    (void)state;
    const apr_hparams h = two_of_experts();
    program_model m;
    apr_session *s;
    apr_error err = {0};
    apr_session_options options = apr_session_defaults;
    options.n_ctx = N_CTX;

    assert_int_equal(program_model_open(&m, &h, APR_F32, &err), APR_OK);
    apr_tensor *const expert = (apr_tensor *)(uintptr_t)apr_model_find(&m.model, "model.layers.1.mlp.experts.3.down_proj.weight");
    assert_non_null(expert);
    expert->dtype = APR_F16;
    assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'model.layers.1.mlp.experts.3.down_proj.weight' is f16, but the first of its experts is f32"));
    expert->dtype = APR_F32;
    expert->dims[1] = 31;
    err = (apr_error){0};
    assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "'model.layers.1.mlp.experts.3.down_proj.weight' has shape [64, 31]"));
    program_model_close(&m);
}

static void one_expert_too_many_has_no_entry(void **state)
{
    (void)state;
    const apr_hparams h = two_of_experts();
    program_model m;
    apr_session *s;
    apr_error err = {0};
    apr_session_options options = apr_session_defaults;
    options.n_ctx = N_CTX;

    assert_int_equal(program_model_open(&m, &h, APR_F32, &err), APR_OK);
    m.model.hparams.num_experts = 5;                                                 /* the sixth is left over */
    assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_E_DAMAGED); /* the router has a row for it */
    assert_non_null(strstr(err.text, "but the hyperparameters give"));
    apr_tensor *const gate = (apr_tensor *)(uintptr_t)apr_model_find(&m.model, "model.layers.0.mlp.gate.weight");
    apr_tensor *const other = (apr_tensor *)(uintptr_t)apr_model_find(&m.model, "model.layers.1.mlp.gate.weight");
    assert_true(gate != NULL && other != NULL);
    gate->dims[0] = other->dims[0] = 5;
    err = (apr_error){0};
    assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "mlp.experts.5."));
    assert_non_null(strstr(err.text, "has no place"));
    program_model_close(&m);
}

/* A device refuses an index that its kernel cannot hold when it is planned; the host runs it. */
static void an_index_too_large_for_a_device_is_refused_before_it_runs(void **state)
{
    (void)state;
    static const struct {
        int64_t n_chosen, head_dim;
        const char *why;
    } cases[] = {
        {2048, 512, NULL},
        {1024, 1024, NULL},
        {2049, 32, "layer 0 chooses 2049 positions with keys of 32 numbers; a GPU takes at most 2048 positions"},
        {2048, 544,
         "layer 0 chooses 2048 positions with keys of 544 numbers; a GPU takes at most 2048 positions, and for so many keys of at most 512 "
         "numbers"},
        {1025, 1024, "for so many keys of at most 512 numbers; run the model on the host"},
    };
    static const uint8_t ffns[2] = {APR_FFN_DENSE, APR_FFN_DENSE};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_session_options options = apr_session_defaults;
        apr_hparams h = program_model_sizes("deepseek_v32");
        apr_session *s;
        apr_plan plan;
        apr_error err = {0};
        program_model m;
        h.ffn_kinds = ffns;
        h.num_experts = 0;
        h.index_topk = cases[i].n_chosen;
        h.index_head_dim = cases[i].head_dim;
        options.n_ctx = N_CTX;
        options.cuda = fake_device();
        if (program_model_open(&m, &h, APR_F16, &err) != APR_OK) fail_msg("%s", err.text);
        const apr_status expected = cases[i].why == NULL ? APR_OK : APR_E_UNSUPPORTED;
        assert_int_equal(apr_session_open(&s, &m.model, &options, &err), expected);
        if (expected == APR_OK) apr_session_close(s);
        else assert_non_null(strstr(err.text, cases[i].why));
        assert_int_equal(apr_session_forecast(&plan, &m.model, &options, &err), expected);
        if (expected == APR_OK) apr_plan_close(&plan);
        options.cuda = NULL;
        assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_OK);
        apr_session_close(s);
        program_model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_its_tokens_and_a_reset_forgets_them),
        cmocka_unit_test(float64_is_ref_and_a_prompt_has_the_bits_of_its_tokens),
        cmocka_unit_test(composed_matrices_are_stored_in_order_in_their_own_memory),
        cmocka_unit_test(a_device_gets_the_same_weights_and_what_the_plan_says),
        cmocka_unit_test(what_has_no_kernel_is_decoded_expert_by_expert),
        cmocka_unit_test(a_device_that_fails_is_left_with_experts_and_states),
        cmocka_unit_test(windows_and_chunks_need_the_cells_that_stay_visible),
        cmocka_unit_test(a_table_that_stays_on_the_host_is_read_there),
        cmocka_unit_test(an_index_too_large_for_a_device_is_refused_before_it_runs),
        cmocka_unit_test(experts_of_one_layer_must_be_of_one_type_and_all_there),
        cmocka_unit_test(one_expert_too_many_has_no_entry),
    };
    return cmocka_run_group_tests(tests, make_text, NULL);
}
