/* runtime/program/fusion.c: whatever is put together, every operation is done once, and after what it reads. */
#include "runtime/program/ability.h"
#include "runtime/program/fusion.h"
#include "tests/support/program_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct walked {
    const apr_program *program;
    apr_fused_batch batch;
    int *n_done;      /* [n_ops] */
    bool *is_made;    /* [n_values] as float32 */
    bool *is_written; /* [n_activations] */
} walked;

static void need(const walked *w, int value, const char *who)
{
    if (value >= 0 && !w->is_made[value]) fail_msg("%s: '%s' is read before it is made", who, w->program->values[value].name);
}

static void make(walked *w, int value)
{
    if (value >= 0) w->is_made[value] = true;
}

static void walk_products(walked *w, const apr_fused *step)
{
    const apr_op *const ops = w->program->ops;
    assert_true(w->is_written[step->inputs]);
    for (int i = 0; i < step->n_linears; i++) {
        w->n_done[step->linears[i]]++;
        if (step->glu < 0 && step->add < 0) make(w, ops[step->linears[i]].out);
    }
    if (step->add >= 0) {
        const apr_op *const add = &ops[step->add];
        need(w, add->in[0] == ops[step->linears[0]].out ? add->in[1] : add->in[0], "a sum");
    }
    const int end = step->glu >= 0 ? step->glu : step->add;
    if (end >= 0) w->n_done[end]++;
    if (end >= 0 && step->writes_f32) make(w, ops[end].out);
    if (step->norm < 0 && step->normed >= 0) w->n_done[step->normed]++;
}

/* Experts read their routes, and the residual, as float32; of rows their inputs too, and their sum is always written. */
static void walk_experts(walked *w, const apr_fused *step)
{
    const apr_op *const op = &w->program->ops[step->op], *const add = step->add >= 0 ? &w->program->ops[step->add] : NULL;
    const bool are_of_rows = w->batch == APR_FUSED_OF_ROWS;
    if (are_of_rows) need(w, op->in[0], "experts");
    else assert_true(w->is_written[step->inputs]);
    assert_true(!are_of_rows || (add != NULL && step->norm >= 0));
    need(w, op->in[1], "experts");
    if (add != NULL) need(w, add->in[0] == op->out ? add->in[1] : add->in[0], "a sum");
    w->n_done[step->op]++;
    if (add != NULL) w->n_done[step->add]++;
    if (step->writes_f32 || are_of_rows) make(w, add != NULL ? add->out : op->out);
}

static void walk_operation(walked *w, int index)
{
    const apr_op *const op = &w->program->ops[index];
    for (int k = 0; k < APR_OP_MAX_IN; k++) need(w, op->in[k], apr_op_name(op->kind));
    w->n_done[index]++;
    make(w, op->out);
}

static void walk_run(walked *w, int first, int n)
{
    for (int i = first; i < first + n; i++) walk_operation(w, i);
}

/* The rotated key has no other reader. */
static void walk_qkv_epilogue(walked *w, const apr_fused *step)
{
    const apr_op *const ops = w->program->ops;
    for (int k = 0; k < 2; k++) {
        const apr_op *const first = &ops[step->head_norms[k] >= 0 ? step->head_norms[k] : step->ropes[k]];
        need(w, first->in[0], "a QKV epilogue");
        need(w, ops[step->ropes[k]].in[1], "a QKV epilogue");
        w->n_done[step->ropes[k]]++;
        if (step->head_norms[k] >= 0) w->n_done[step->head_norms[k]]++;
    }
    need(w, ops[step->store].in[1], "a QKV epilogue");
    w->n_done[step->store]++;
    make(w, ops[step->ropes[0]].out);
}

/* A norm that is absorbed is done by each step that leaves its activations: at least once. */
static void walk(walked *w, const apr_fusion *fusion)
{
    for (size_t i = 0; i < fusion->n_steps; i++) {
        const apr_fused *const step = &fusion->steps[i];
        if (step->kind == APR_FUSED_OPERATION) walk_operation(w, step->op);
        if (step->kind == APR_FUSED_PRODUCTS) walk_products(w, step);
        if (step->store >= 0) walk_qkv_epilogue(w, step);
        if (step->kind == APR_FUSED_ATTEND) walk_operation(w, step->op);
        if (step->kind == APR_FUSED_INPUTS && step->add >= 0) walk_operation(w, step->add);
        if (step->kind == APR_FUSED_INPUTS) need(w, step->value, "inputs");
        if (step->normed >= 0) make(w, w->program->ops[step->normed].out);
        if (step->with_next) assert_true(step[1].kind == APR_FUSED_PRODUCTS && step[1].inputs == step->inputs && !step[1].with_next);
        if (step->kind == APR_FUSED_EXPERTS) walk_experts(w, step);
        if (step->kind == APR_FUSED_LATENT_QUERY) walk_run(w, step->op, APR_LATENT_QUERY_OPS);
        if (step->latent_store >= 0) walk_run(w, step->latent_store, APR_LATENT_STORE_OPS);
        if (step->kind == APR_FUSED_LATENT_STORE) walk_run(w, step->op, APR_LATENT_STORE_OPS);
        if (step->activations < 0) continue;
        w->is_written[step->activations] = true;
        if (step->norm >= 0) w->n_done[step->norm] = 1;
        assert_int_equal(fusion->activations[step->activations].first_step, i);
    }
}

/* All linears of whole rows, of one type, and all experts of a token use the decode GEMV; every QKV epilogue may be fused. Routers of rows
 * have a kernel of their own. */
static bool takes_op(const apr_op *op, apr_fused_batch batch)
{
    if (batch == APR_FUSED_OF_ROWS && op->kind == APR_OP_EXPERTS) return false;
    return op->kind != APR_OP_LINEAR || (op->args.linear.heads.n == 0 && (batch == APR_FUSED_OF_TOKEN || !op->args.linear.is_router));
}

static apr_fusion fuse(const apr_program *p, bool all, apr_fused_batch batch)
{
    int *const takes = calloc(p->n_ops + 1, sizeof *takes);
    apr_fusion fusion;
    assert_non_null(takes);
    for (size_t i = 0; i < p->n_ops; i++) takes[i] = all && takes_op(&p->ops[i], batch);
    assert_int_equal(apr_fuse(&fusion, p, &(apr_fusible){.takes = takes, .batch = batch}, NULL), APR_OK);
    free(takes);
    return fusion;
}

static void check(const apr_program *p, const apr_fusion *fusion, const char *name)
{
    walked w = {p, fusion->batch, calloc(p->n_ops + 1, sizeof(int)), calloc(p->n_values + 1, sizeof(bool)),
                calloc(fusion->n_activations + 1, sizeof(bool))};
    walk(&w, fusion);
    for (size_t i = 0; i < p->n_ops; i++)
        if (w.n_done[i] != 1) fail_msg("%s: operation %zu (%s) is done %d times", name, i, apr_op_name(p->ops[i].kind), w.n_done[i]);
    free(w.n_done);
    free(w.is_made);
    free(w.is_written);
}

static void every_operation_of_every_family_is_done_once_and_in_time(void **state)
{
    (void)state;
    int n_families = 0;
    for (size_t i = 0; i < apr_n_families; i++) {
        const char *const name = apr_families[i]->types[0].name;
        const apr_hparams h = program_model_sizes(name);
        program_model m;
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN || program_model_open(&m, &h, APR_BF16, NULL) != APR_OK)
            continue;
        for (apr_fused_batch batch = APR_FUSED_OF_TOKEN; batch <= APR_FUSED_OF_ROWS; batch++) {
            apr_fusion together = fuse(&m.program, true, batch), apart = fuse(&m.program, false, batch);
            check(&m.program, &together, name);
            check(&m.program, &apart, name);
            assert_int_equal(apart.n_activations, 0);
            for (size_t k = 0; k < apart.n_steps; k++) assert_int_equal(apart.steps[k].kind, APR_FUSED_OPERATION);
            assert_int_equal(apart.n_steps, m.program.n_ops);
            apr_fusion_close(&together);
            apr_fusion_close(&apart);
        }
        program_model_close(&m);
        n_families++;
    }
    assert_true(n_families >= 20);
}

/* One of each a layer: nothing is left of what is between the products and attention to latents. */
static void latent_attention_is_two_steps_and_attention(void **state)
{
    static const uint8_t mixers[] = {APR_LAYER_FULL, APR_LAYER_FULL}, ffns[] = {APR_FFN_DENSE, APR_FFN_DENSE};
    (void)state;
    apr_hparams h = program_model_sizes("deepseek_v3");
    program_model m;
    h.num_layers = 2;
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    h.num_experts = 0;
    assert_int_equal(program_model_open(&m, &h, APR_BF16, NULL), APR_OK);
    apr_fusion fusion = fuse(&m.program, true, APR_FUSED_OF_TOKEN);
    int n[APR_FUSED_KINDS] = {0}, n_small = 0, n_stores = 0;
    for (size_t i = 0; i < fusion.n_steps; i++) {
        const apr_op_kind kind = m.program.ops[fusion.steps[i].op >= 0 ? fusion.steps[i].op : 0].kind;
        n[fusion.steps[i].kind]++;
        n_stores += fusion.steps[i].latent_store >= 0;
        n_small += fusion.steps[i].kind == APR_FUSED_OPERATION && (kind == APR_OP_SLICE || kind == APR_OP_JOIN || kind == APR_OP_ROPE);
    }
    assert_int_equal(n[APR_FUSED_LATENT_QUERY], 2);
    assert_int_equal(n[APR_FUSED_LATENT_STORE] + n_stores, 2);
    assert_int_equal(n_small, 0);
    apr_fusion_close(&fusion);
    program_model_close(&m);
}

/* What a second layer adds to a first one. */
static size_t steps_of_a_layer(const char *family, apr_ffn_kind ffn, apr_fused_batch batch)
{
    static uint8_t mixers[2] = {APR_LAYER_FULL, APR_LAYER_FULL};
    uint8_t ffns[2] = {ffn, ffn};
    apr_hparams h = program_model_sizes(family);
    size_t n_steps[2];
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    if (ffn != APR_FFN_EXPERTS) h.num_experts = 0;
    for (int n = 1; n <= 2; n++) {
        program_model m;
        h.num_layers = n;
        assert_int_equal(program_model_open(&m, &h, APR_BF16, NULL), APR_OK);
        apr_fusion fusion = fuse(&m.program, true, batch);
        n_steps[n - 1] = fusion.n_steps;
        apr_fusion_close(&fusion);
        program_model_close(&m);
    }
    return n_steps[1] - n_steps[0];
}

/* Inputs of the first norm once; q k v; attend, which writes inputs; o + h; gate up; down + h: all of them write the next one's. The QKV
 * epilogue goes with attend, or of rows with q k v. */
static void a_layer_of_llama_takes_five_steps(void **state)
{
    (void)state;
    assert_int_equal(steps_of_a_layer("llama", APR_FFN_DENSE, APR_FUSED_OF_TOKEN), 5);
    assert_int_equal(steps_of_a_layer("llama", APR_FFN_DENSE, APR_FUSED_OF_ROWS), 5);
}

/* The same up to o + h, whose inputs the router and the experts share: the router; who is chosen; experts + h. */
static void a_layer_of_experts_takes_six_steps(void **state)
{
    (void)state;
    assert_int_equal(steps_of_a_layer("qwen3_moe", APR_FFN_EXPERTS, APR_FUSED_OF_TOKEN), 6);
    assert_int_equal(steps_of_a_layer("qwen3_moe", APR_FFN_EXPERTS, APR_FUSED_OF_ROWS), 6);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_of_every_family_is_done_once_and_in_time),
        cmocka_unit_test(latent_attention_is_two_steps_and_attention),
        cmocka_unit_test(a_layer_of_llama_takes_five_steps),
        cmocka_unit_test(a_layer_of_experts_takes_six_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
