/* runtime/session/prompt_steps.c: whatever is fused, no step reads a value that is not made; runtime/session/session_prompt.c: in steps a
 * session's prompts give what they give operation by operation. */
#include "runtime/program/ability.h"
#include "runtime/session/prompt_steps.h"
#include "tests/support/fake_device.h"
#include "tests/support/program_model.h"
#include "tests/support/replay_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static apr_prompt_steps find(const apr_program *p, bool biases, bool turns)
{
    bool *const has = calloc(p->n_weights + 1, sizeof *has);
    apr_prompt_steps steps;
    assert_non_null(has);
    for (size_t i = 0; i < p->n_weights; i++) has[i] = biases || !p->weights[i].optional;
    assert_int_equal(apr_prompt_find_steps(&steps, p, &(apr_prompt_support){has, turns}, NULL), APR_OK);
    free(has);
    return steps;
}

/* --- what is made as floats, and what is read --- */

typedef struct walked {
    const apr_program *program;
    bool *is_made; /* [n_values] whole, for any reader */
    int left;      /* what the step before left for this one alone; -1: nothing */
} walked;

static void need(const walked *w, int value, const char *who)
{
    if (value >= 0 && !w->is_made[value]) fail_msg("%s: '%s' is read and not made", who, w->program->values[value].name);
}

static void make(walked *w, int value)
{
    if (value >= 0) w->is_made[value] = true;
}

static void walk_inputs(walked *w, const apr_prompt_step *step)
{
    const apr_op *const ops = w->program->ops;
    const int x = ops[step->linears[0]].in[0];
    if (step->add >= 0) {
        const apr_op *const add = &ops[step->add];
        for (int k = 0; k < 2; k++)
            if (add->in[k] != w->left) need(w, add->in[k], "a sum");
        assert_int_equal(step->addend_is_unscaled, add->in[0] == w->left || add->in[1] == w->left);
        make(w, add->out);
    }
    if (step->norm >= 0) {
        need(w, ops[step->norm].in[0], "a norm");
        assert_int_equal(ops[step->norm].out, x);
        if (step->add >= 0) assert_int_equal(ops[step->norm].in[0], ops[step->add].out);
    } else if (step->input_is_glu) {
        assert_int_equal(x, w->left);
    } else {
        need(w, x, "a product");
    }
    for (int k = 0; k < step->n_linears; k++) assert_int_equal(ops[step->linears[k]].in[0], x);
}

static void walk_ending(walked *w, const apr_prompt_step *step)
{
    const apr_op *const ops = w->program->ops;
    w->left = -1;
    if (step->epilogue == APR_PROMPT_STORE)
        for (int k = 0; k < step->n_linears; k++) make(w, ops[step->linears[k]].out);
    if (step->epilogue == APR_PROMPT_UNSCALED) w->left = ops[step->linears[0]].out;
    if (step->epilogue == APR_PROMPT_GLU) {
        for (int k = 0; k < 2; k++) assert_int_equal(ops[step->glu].in[k], ops[step->linears[k]].out);
        w->left = ops[step->glu].out;
    }
    if (step->epilogue != APR_PROMPT_QKV) return;
    for (int k = 0; k < 2; k++) {
        const int norm = step->head_norms[k], from = norm >= 0 ? norm : step->linears[k];
        if (norm >= 0) assert_int_equal(ops[norm].in[0], ops[step->linears[k]].out);
        assert_int_equal(ops[step->ropes[k]].in[0], ops[from].out);
        need(w, ops[step->ropes[k]].in[1], "a rotation");
    }
    assert_int_equal(ops[step->store].in[0], ops[step->ropes[1]].out);
    assert_int_equal(ops[step->store].in[1], ops[step->linears[2]].out);
    make(w, ops[step->ropes[0]].out);
}

/* Every operation in order, the steps where they begin. Returns how many operations are in none. */
static size_t walk(const apr_program *p, const apr_prompt_steps *steps)
{
    walked w = {p, calloc(p->n_values + 1, sizeof(bool)), -1};
    size_t next = 0, n_alone = 0;

    assert_non_null(w.is_made);
    for (size_t i = 0; i < p->n_ops;) {
        if (next < steps->n && steps->steps[next].first == i) {
            const apr_prompt_step *const step = &steps->steps[next++];
            const size_t n_others = (size_t)(step->add >= 0) + (step->norm >= 0) + (step->glu >= 0) + (step->store >= 0 ? 3 : 0) +
                                    (step->head_norms[0] >= 0) + (step->head_norms[1] >= 0);
            assert_int_equal(step->end - step->first, n_others + (size_t)step->n_linears);
            walk_inputs(&w, step);
            walk_ending(&w, step);
            i = step->end;
            continue;
        }
        if (w.left >= 0) fail_msg("'%s' was left for a step that is none", p->values[w.left].name);
        for (int k = 0; k < APR_OP_MAX_IN; k++) need(&w, p->ops[i].in[k], apr_op_name(p->ops[i].kind));
        make(&w, p->ops[i++].out);
        n_alone++;
    }
    assert_int_equal(next, steps->n);
    free(w.is_made);
    return n_alone;
}

static void no_step_reads_a_value_that_no_step_makes(void **state)
{
    (void)state;
    int n_families = 0;
    for (size_t i = 0; i < apr_n_families; i++) {
        const char *const name = apr_families[i]->types[0].name;
        const apr_hparams h = program_model_sizes(name);
        program_model m;
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN || program_model_open(&m, &h, APR_BF16, NULL) != APR_OK)
            continue;
        for (int way = 0; way < 4; way++) {
            apr_prompt_steps steps = find(&m.program, way % 2 != 0, way / 2 != 0);
            walk(&m.program, &steps);
            apr_prompt_close_steps(&steps);
        }
        program_model_close(&m);
        n_families++;
    }
    assert_true(n_families >= 20);
}

/* norm, q, k, v, two rotations, kv store; attention; o; sum, norm, gate, up, GLU; down; with what is before and after all layers. */
static void a_layer_of_llama_is_four_steps_and_its_attention(void **state)
{
    static const struct {
        const char *family;
        size_t n_steps, n_alone;
    } cases[] = {{"llama", 8, 10}, {"qwen2", 8, 10}, {"qwen3", 8, 12}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_hparams h = program_model_sizes(cases[i].family);
        apr_hparams dense = h;
        program_model m;
        dense.num_experts = 0;
        dense.sliding_window = 0;
        dense.num_heads = dense.num_kv_heads; /* so that q is not twice as wide as its inputs, which would be prepared otherwise */
        assert_int_equal(program_model_open(&m, &dense, APR_BF16, NULL), APR_OK);
        apr_prompt_steps steps = find(&m.program, false, true);
        const size_t n_alone = walk(&m.program, &steps);
        if (steps.n != cases[i].n_steps || n_alone != cases[i].n_alone)
            fail_msg("%s: %zu steps and %zu operations", cases[i].family, steps.n, n_alone);
        assert_int_equal(steps.steps[0].epilogue, APR_PROMPT_STORE); /* angles are made between the first products and rotations */
        for (size_t k = 1; k + 1 < steps.n; k++) {
            static const apr_prompt_epilogue epilogues[] = {APR_PROMPT_QKV, APR_PROMPT_UNSCALED, APR_PROMPT_GLU, APR_PROMPT_UNSCALED};
            assert_int_equal(steps.steps[k].epilogue, epilogues[k % 4]);
        }
        assert_int_equal(steps.steps[7].epilogue, APR_PROMPT_STORE); /* its sum is a hidden state that nothing here norms */
        apr_prompt_close_steps(&steps);
        program_model_close(&m);
    }
}

/* --- sessions --- */

enum { N_PROMPT = 300, N_BATCH = 160 };

/* The last token's logits after a prompt of two batches, the second of which has few tokens or many. */
static float *after_prompt(const program_model *m, size_t n_ids, bool fused, int *n_steps)
{
    apr_session_options options = apr_session_defaults;
    int32_t ids[N_PROMPT];
    apr_error err = {0};

    options.n_ctx = N_PROMPT;
    options.n_batch = N_BATCH;
    options.kv_dtype = APR_F32;
    options.cuda = fake_device();
    options.no_replay = true;
    options.no_fusion = !fused;
    apr_session *const s = must_open_session(&m->model, &options);
    for (size_t i = 0; i < n_ids; i++) ids[i] = (int32_t)((i * i + 7 * i) % (size_t)m->program.vocab_size);
    const int before = fake_device_prompt_steps();
    if (apr_session_eval(s, ids, n_ids, NULL, &err) != APR_OK || apr_session_read_logits(s, &err) != APR_OK) fail_msg("%s", err.text);
    *n_steps = fake_device_prompt_steps() - before;
    float *const logits = malloc((size_t)m->program.vocab_size * sizeof *logits);
    assert_non_null(logits);
    memcpy(logits, apr_session_logits(s), (size_t)m->program.vocab_size * sizeof *logits);
    apr_session_close(s);
    return logits;
}

static void sessions_answer_the_same(void **state)
{
    (void)state;
    int n_with_steps = 0;
    for (size_t i = 0; i < apr_n_families; i++) {
        const char *const name = apr_families[i]->types[0].name;
        program_model m;
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        if (!replay_open_layers(&m, name, APR_LAYER_FULL, 2) && !replay_open_layers(&m, name, APR_LAYER_SLIDING, 2)) continue;
        int in_steps, apart, twice;
        float *const a = after_prompt(&m, N_BATCH + 20, true, &in_steps), *const b = after_prompt(&m, N_BATCH + 20, false, &apart);
        float *const c = after_prompt(&m, N_PROMPT, true, &twice);
        assert_int_equal(apart, 0);
        assert_int_equal(twice, 2 * in_steps); /* 20 tokens are not a prompt, 140 are */
        if (memcmp(a, b, (size_t)m.program.vocab_size * sizeof *a) != 0) fail_msg("%s: other numbers", name);
        n_with_steps += in_steps > 0;
        free(a);
        free(b);
        free(c);
        program_model_close(&m);
    }
    assert_true(n_with_steps >= 20);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_reads_a_value_that_no_step_makes),
        cmocka_unit_test(a_layer_of_llama_is_four_steps_and_its_attention),
        cmocka_unit_test(sessions_answer_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
