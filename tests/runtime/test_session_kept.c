/* runtime/session/kept.h: from every operation with which an evaluation may begin, it gives the bits of the whole program, on the host and
 * in a device's fused steps; where a state is shared across layers it may not begin. */
#include "runtime/session/kept.h"

#include "runtime/program/ability.h"
#include "runtime/session/trace.h"
#include "tests/support/fake_device.h"
#include "tests/support/replay_script.h"
#include "tests/support/sanitizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* On a device a batch that it computes in fused steps, and one of few tokens. On the host two of few. */
enum { N_TOKENS = 144, N_BATCH = 132, N_HOST_TOKENS = 24, N_HOST_BATCH = 16 };

typedef struct evaluation {
    apr_session *s;
    const apr_program *program;
    apr_cuda_device *device;
    const apr_cuda_api *cuda;
    bool *is_needed; /* [n_values] */
    float **values;  /* [n_values] */
    int32_t ids[N_TOKENS];
    int64_t n_tokens;
} evaluation;

static void must(apr_status status, const apr_error *err)
{
    if (status != APR_OK) fail_msg("%s", err->text);
}

static void begin(evaluation *e, const program_model *m, bool on_device)
{
    apr_session_options options = apr_session_defaults;

    options.n_ctx = on_device ? N_TOKENS : N_HOST_TOKENS;
    options.n_batch = on_device ? N_BATCH : N_HOST_BATCH;
    options.n_threads = 2;
    options.kv_dtype = APR_F32;
    options.cuda = on_device ? fake_device() : NULL;
    *e = (evaluation){.s = must_open_session(&m->model, &options), .program = &m->program, .n_tokens = options.n_ctx};
    if (on_device) e->device = apr_trace_device(e->s, &e->cuda);
    e->is_needed = calloc(e->program->n_values, sizeof *e->is_needed);
    e->values = calloc(e->program->n_values, sizeof *e->values);
    assert_true(e->is_needed != NULL && e->values != NULL);
    for (int i = 0; i < N_TOKENS; i++) e->ids[i] = (int32_t)((i * i + 7 * i) % m->program.vocab_size);
}

static void end(evaluation *e)
{
    for (size_t v = 0; v < e->program->n_values; v++) {
        if (e->values[v] == NULL) continue;
        if (e->device != NULL) e->cuda->release(e->device, e->values[v]);
        else free(e->values[v]);
    }
    apr_session_close(e->s);
    free(e->values);
    free(e->is_needed);
}

static void allocate(evaluation *e)
{
    apr_error err = {0};
    for (size_t v = 0; v < e->program->n_values; v++) {
        const size_t n_bytes = (size_t)(e->n_tokens * e->program->values[v].width) * sizeof(float);
        if (!e->is_needed[v]) continue;
        if (e->device != NULL) must(e->cuda->alloc(e->device, n_bytes, "values", (void **)&e->values[v], &err), &err);
        else e->values[v] = malloc(n_bytes);
        assert_non_null(e->values[v]);
    }
}

/* Logits of all tokens, to be freed. */
static float *logits_of(evaluation *e, const apr_kept *kept)
{
    float *const logits = malloc((size_t)(e->n_tokens * e->program->vocab_size) * sizeof *logits);
    const apr_eval_output out = {.all_logits = true, .logits = logits, .kept = kept};
    apr_error err = {0};

    assert_non_null(logits);
    apr_session_reset(e->s);
    must(apr_session_eval(e->s, e->ids, (size_t)e->n_tokens, &out, &err), &err);
    return logits;
}

/* Writes other numbers over all values and states. */
static void evaluate_others(evaluation *e)
{
    int32_t others[N_TOKENS];
    apr_error err = {0};
    for (int i = 0; i < N_TOKENS; i++) others[i] = (int32_t)((e->ids[i] + 11 + i) % e->program->vocab_size);
    apr_session_reset(e->s);
    must(apr_session_eval(e->s, others, (size_t)e->n_tokens, NULL, &err), &err);
}

/* Is it the first operation of a layer, or of the logits? */
static bool is_boundary(const apr_program *p, size_t op)
{
    return p->ops[op].layer != p->ops[op - 1].layer || (p->ops[op].out >= 0 && p->values[p->ops[op].out].is_logits);
}

/* Tries every operation, or only boundaries of layers. Returns with how many an evaluation can begin. */
static size_t check(const program_model *m, bool on_device, bool all)
{
    const apr_program *const p = &m->program;
    size_t n = 0;
    evaluation e;

    begin(&e, m, on_device);
    const size_t n_bytes = (size_t)(e.n_tokens * p->vocab_size) * sizeof(float);
    for (size_t op = 1; op < p->n_ops; op++)
        if (all || is_boundary(p, op)) apr_session_can_begin(e.s, op, e.is_needed);
    allocate(&e);
    apr_kept kept = {.values = e.values};
    float *const plain = logits_of(&e, NULL), *const whole = logits_of(&e, &kept);
    assert_memory_equal(plain, whole, n_bytes);
    for (kept.begin = 1; kept.begin < p->n_ops; kept.begin++) {
        if ((!all && !is_boundary(p, kept.begin)) || !apr_session_can_begin(e.s, kept.begin, NULL)) continue;
        evaluate_others(&e);
        float *const rest = logits_of(&e, &kept);
        if (memcmp(rest, whole, n_bytes) != 0)
            fail_msg("%s: other logits from operation %zu of layer %d on", p->architecture, kept.begin, p->ops[kept.begin].layer);
        free(rest);
        n++;
    }
    free(plain);
    free(whole);
    end(&e);
    return n;
}

/* Two layers of each kind that each family has. An evaluation can begin with the second layer of all, and with the logits. */
static void check_families(bool on_device)
{
    const size_t step = !APR_HAS_SANITIZER ? 1 : on_device ? 8 : 4; /* a device's prompts are longer */
    size_t n_families = 0;
    for (size_t i = on_device ? step / 2 : 0; i < apr_n_families; i += step) {
        const char *const name = apr_families[i]->types[0].name;
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        for (uint8_t mixer = 0; mixer <= APR_LAYER_NONE; mixer++) {
            program_model m;
            if (!replay_open_layers(&m, name, mixer, 2)) continue;
            const size_t n = check(&m, on_device, false);
            if (n < 2) fail_msg("%s, layers of kind %d: evaluations can begin with %zu operations", name, mixer, n);
            program_model_close(&m);
        }
        n_families++;
    }
    assert_true(n_families >= 30 / step);
}

static void from_a_layer_on_every_family_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    check_families(false);
}

static void a_device_too_in_its_fused_steps(void **state)
{
    (void)state;
    const int before = fake_device_prompt_steps();
    check_families(true);
    assert_true(fake_device_prompt_steps() > before);
}

/* Dense, a mixture, recurrent, with a state that attention reads. */
static void inside_of_layers_too(void **state)
{
    static const struct {
        const char *family;
        uint8_t mixer;
    } cases[] = {
        {"llama", APR_LAYER_FULL}, {"qwen3_moe", APR_LAYER_FULL}, {"qwen3_next", APR_LAYER_LINEAR}, {"gpt_oss", APR_LAYER_SLIDING}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_model m;
        assert_true(replay_open_layers(&m, cases[i].family, cases[i].mixer, 2));
        /* under a sanitizer in turn on the host and on a device */
        if (!APR_HAS_SANITIZER || i % 2 == 0) assert_true(check(&m, false, true) > 10);
        if (!APR_HAS_SANITIZER || i % 2 == 1) assert_true(check(&m, true, true) > 6);
        program_model_close(&m);
    }
}

/* The last two of four layers read keys and values of earlier ones: an evaluation can begin before those, not between. */
static void not_between_layers_that_share_keys_and_values(void **state)
{
    static const uint8_t mixers[] = {APR_LAYER_FULL, APR_LAYER_FULL, APR_LAYER_FULL, APR_LAYER_FULL},
                         ffns[] = {APR_FFN_DENSE, APR_FFN_DENSE, APR_FFN_DENSE, APR_FFN_DENSE};
    apr_hparams h = program_model_sizes("gemma4_text");
    program_model m;
    evaluation e;
    (void)state;
    h.num_layers = 4;
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    h.num_experts = 0;
    h.num_kv_shared_layers = 2;
    assert_int_equal(program_model_open(&m, &h, APR_BF16, NULL), APR_OK);
    begin(&e, &m, false);
    for (size_t op = 1; op < m.program.n_ops; op++) {
        const int layer = m.program.ops[op].layer;
        if (layer >= 0 && m.program.ops[op - 1].layer == layer - 1) assert_int_equal(apr_session_can_begin(e.s, op, NULL), layer < 2);
    }
    end(&e);
    assert_true(check(&m, false, true) > 4);
    program_model_close(&m);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_a_layer_on_every_family_has_the_bits_of_the_whole),
        cmocka_unit_test(a_device_too_in_its_fused_steps),
        cmocka_unit_test(inside_of_layers_too),
        cmocka_unit_test(not_between_layers_that_share_keys_and_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
