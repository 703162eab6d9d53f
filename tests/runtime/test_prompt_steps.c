/* runtime/program/fusion.c: whatever is fused of a prompt, no step reads a value that is not made; runtime/session/session_steps.c: in steps a
 * session's prompts give what they give operation by operation. */
#include "kernels/cuda/prompt_args.h"
#include "runtime/program/ability.h"
#include "runtime/program/fusion.h"
#include "tests/support/fake_device.h"
#include "tests/support/program_model.h"
#include "tests/support/replay_script.h"
#include "tests/support/sanitizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What a device takes (session_steps.c): products whose inputs share a scale are in no call with others, and read no GLU. */
static int takes_of(const apr_program *p, size_t i, const int64_t *offsets, bool qkv_epilogues)
{
    const apr_op *const op = &p->ops[i];
    const apr_norm_args *const norm = &op->args.norm;
    if (op->kind == APR_OP_KV_STORE) return qkv_epilogues;
    if (op->kind == APR_OP_NORM) return apr_prompt_has_norm(norm->kind, p->values[op->out].width, norm->chunk, norm->n_weight);
    if (op->kind == APR_OP_GLU) return i + 1 < p->n_ops && takes_of(p, i + 1, offsets, qkv_epilogues) == 1;
    if (op->kind != APR_OP_LINEAR || op->args.linear.heads.n > 0 || p->values[op->out].is_logits) return 0;
    const bool has_bias = op->weight[1] >= 0 && offsets[op->weight[1]] >= 0;
    return 1 + apr_prompt_shares_scale(APR_PROMPT_MIN_TOKENS, p->values[op->in[0]].width, p->values[op->out].width, has_bias);
}

static apr_fusion find(const apr_program *p, bool biases, bool qkv_epilogues)
{
    int64_t *const offsets = calloc(p->n_weights + 1, sizeof *offsets);
    int *const takes = calloc(p->n_ops + 1, sizeof *takes);
    apr_fusion fusion;
    assert_true(offsets != NULL && takes != NULL);
    for (size_t i = 0; i < p->n_weights; i++) offsets[i] = biases || !p->weights[i].optional ? 0 : -1;
    for (size_t i = 0; i < p->n_ops; i++) takes[i] = takes_of(p, i, offsets, qkv_epilogues);
    assert_int_equal(apr_fuse(&fusion, p, &(apr_fusible){.takes = takes, .vector_offsets = offsets, .batch = APR_FUSED_OF_PROMPT}, NULL),
                     APR_OK);
    free(offsets);
    free(takes);
    return fusion;
}

/* As in session_steps.c: what the products leave follows from the step. */
static bool is_unscaled(const apr_fused *step) { return step->store < 0 && step->glu < 0 && !step->writes_f32; }

/* --- what is made as floats, and what is read --- */

typedef struct walked {
    const apr_program *program;
    bool *is_made; /* [n_values] whole, for any reader */
    int unstored;  /* the result of the step before, for this step alone; -1: none */
    size_t next;   /* the first operation that no step has had */
} walked;

static void need(const walked *w, int value, const char *who)
{
    if (value >= 0 && !w->is_made[value]) fail_msg("%s: '%s' is read and not made", who, w->program->values[value].name);
}

static void make(walked *w, int value)
{
    if (value >= 0) w->is_made[value] = true;
}

/* Operations of a step are adjacent. */
static const apr_op *take(walked *w, int op)
{
    assert_int_equal(op, w->next++);
    return &w->program->ops[op];
}

static void walk_inputs(walked *w, const apr_fused *step)
{
    const apr_op *const ops = w->program->ops;
    const int x = ops[step->linears[0]].in[0];
    if (step->add >= 0) {
        const apr_op *const add = take(w, step->add);
        for (int k = 0; k < 2; k++)
            if (add->in[k] != w->unstored) need(w, add->in[k], "a sum");
        make(w, add->out);
    }
    if (step->norm >= 0) {
        const apr_op *const norm = take(w, step->norm);
        need(w, norm->in[0], "a norm");
        assert_int_equal(norm->out, x);
        if (step->add >= 0) assert_int_equal(norm->in[0], ops[step->add].out);
    } else if (w->unstored >= 0) {
        assert_int_equal(x, w->unstored);
    } else {
        need(w, x, "a product");
    }
    for (int k = 0; k < step->n_linears; k++) assert_int_equal(take(w, step->linears[k])->in[0], x);
}

static void walk_qkv_epilogue(walked *w, const apr_fused *step)
{
    const apr_op *const ops = w->program->ops;
    for (int k = 0; k < 2; k++) {
        const int norm = step->head_norms[k], from = norm >= 0 ? norm : step->linears[k];
        if (norm >= 0) assert_int_equal(take(w, norm)->in[0], ops[step->linears[k]].out);
        assert_int_equal(take(w, step->ropes[k])->in[0], ops[from].out);
        need(w, ops[step->ropes[k]].in[1], "a rotation");
    }
    assert_int_equal(take(w, step->store)->in[0], ops[step->ropes[1]].out);
    assert_int_equal(ops[step->store].in[1], ops[step->linears[2]].out);
    make(w, ops[step->ropes[0]].out);
}

static void walk_epilogue(walked *w, const apr_fused *step)
{
    const apr_op *const ops = w->program->ops;
    w->unstored = is_unscaled(step) ? ops[step->linears[0]].out : -1;
    for (int k = 0; k < step->n_linears && step->writes_f32; k++) make(w, ops[step->linears[k]].out);
    if (step->store >= 0) walk_qkv_epilogue(w, step);
    if (step->glu < 0) return;
    for (int k = 0; k < 2; k++) assert_int_equal(ops[step->glu].in[k], ops[step->linears[k]].out);
    w->unstored = take(w, step->glu)->out;
}

static void walk_operation(walked *w, int index)
{
    const apr_op *const op = take(w, index);
    if (w->unstored >= 0) fail_msg("'%s' was kept for a step that is none", w->program->values[w->unstored].name);
    for (int k = 0; k < APR_OP_MAX_IN; k++) need(w, op->in[k], apr_op_name(op->kind));
    make(w, op->out);
}

/* Every operation in order. Returns how many are not fused. */
static size_t walk(const apr_program *p, const apr_fusion *fusion)
{
    walked w = {p, calloc(p->n_values + 1, sizeof(bool)), -1, 0};
    size_t n_alone = 0;

    assert_non_null(w.is_made);
    for (size_t i = 0; i < fusion->n_steps; i++) {
        const apr_fused *const step = &fusion->steps[i];
        n_alone += step->kind == APR_FUSED_OPERATION;
        if (step->kind == APR_FUSED_OPERATION) {
            walk_operation(&w, step->op);
            continue;
        }
        assert_int_equal(step->kind, APR_FUSED_PROMPT);
        walk_inputs(&w, step);
        walk_epilogue(&w, step);
    }
    assert_int_equal(w.next, p->n_ops);
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
            apr_fusion fusion = find(&m.program, way % 2 != 0, way / 2 != 0);
            walk(&m.program, &fusion);
            apr_fusion_close(&fusion);
        }
        program_model_close(&m);
        n_families++;
    }
    assert_true(n_families >= 20);
}

/* 's': outputs are stored; 'q': QKV epilogue; 'u': not yet scaled, for the next sum; 'g': GLU. */
static char letter_of(const apr_fused *step) { return step->store >= 0 ? 'q' : step->glu >= 0 ? 'g' : is_unscaled(step) ? 'u' : 's'; }

/* norm, q, k, v, two rotations, kv store; attention; o; sum, norm, gate, up, GLU; down; with what is before and after all layers. */
static void a_layer_of_llama_is_four_steps_and_its_attention(void **state)
{
    static const struct {
        const char *family;
        size_t n_alone;
    } cases[] = {{"llama", 10}, {"qwen2", 10}, {"qwen3", 12}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_hparams h = program_model_sizes(cases[i].family);
        apr_hparams dense = h;
        program_model m;
        dense.num_experts = 0;
        dense.sliding_window = 0;
        dense.num_heads = dense.num_kv_heads; /* so that q is not twice as wide as its inputs, which would share a scale */
        assert_int_equal(program_model_open(&m, &dense, APR_BF16, NULL), APR_OK);
        apr_fusion fusion = find(&m.program, false, true);
        const size_t n_alone = walk(&m.program, &fusion);
        char letters[16] = "";
        for (size_t k = 0, n = 0; k < fusion.n_steps && n + 1 < sizeof letters; k++)
            if (fusion.steps[k].kind == APR_FUSED_PROMPT) letters[n++] = letter_of(&fusion.steps[k]);
        /* first: angles are made between the first products and rotations; last: its sum is a hidden state that nothing here norms */
        assert_string_equal(letters, "suguqugs");
        if (n_alone != cases[i].n_alone) fail_msg("%s: %zu operations", cases[i].family, n_alone);
        apr_fusion_close(&fusion);
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
    const size_t step = APR_HAS_SANITIZER ? 4 : 1;
    size_t n_with_steps = 0;
    for (size_t i = 0; i < apr_n_families; i += step) {
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
    assert_true(n_with_steps >= 20 / step);
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
