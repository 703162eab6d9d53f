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
    int *n_done;     /* [n_ops] */
    bool *is_made;   /* [n_values] as float32 */
    bool *is_planes; /* [n_planes] */
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
    assert_true(w->is_planes[step->inputs]);
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
    if (end >= 0 && step->keeps) make(w, ops[end].out);
}

/* A norm that is absorbed is done by whoever leaves its planes: once at least. */
static void walk(walked *w, const apr_fusion *fusion)
{
    for (size_t i = 0; i < fusion->n_steps; i++) {
        const apr_fused *const step = &fusion->steps[i];
        if (step->kind == APR_FUSED_OPERATION) {
            const apr_op *const op = &w->program->ops[step->op];
            for (int k = 0; k < APR_OP_MAX_IN; k++) need(w, op->in[k], apr_op_name(op->kind));
            w->n_done[step->op]++;
            make(w, op->out);
        }
        if (step->kind == APR_FUSED_INPUTS) need(w, step->value, "inputs");
        if (step->kind == APR_FUSED_PRODUCTS) walk_products(w, step);
        if (step->planes < 0) continue;
        w->is_planes[step->planes] = true;
        if (step->norm >= 0) w->n_done[step->norm] = 1;
        assert_int_equal(fusion->planes[step->planes].first_step, i);
    }
}

/* All linears of whole rows stream, of one type. */
static apr_fusion fuse(const apr_program *p, bool all)
{
    int *const streams = calloc(p->n_ops + 1, sizeof *streams);
    apr_fusion fusion;
    assert_non_null(streams);
    for (size_t i = 0; i < p->n_ops; i++) streams[i] = all && p->ops[i].kind == APR_OP_LINEAR && p->ops[i].args.linear.heads.n == 0;
    assert_int_equal(apr_fuse(&fusion, p, streams, NULL), APR_OK);
    free(streams);
    return fusion;
}

static void check(const apr_program *p, const apr_fusion *fusion, const char *name)
{
    walked w = {p, calloc(p->n_ops + 1, sizeof(int)), calloc(p->n_values + 1, sizeof(bool)), calloc(fusion->n_planes + 1, sizeof(bool))};
    walk(&w, fusion);
    for (size_t i = 0; i < p->n_ops; i++)
        if (w.n_done[i] != 1) fail_msg("%s: operation %zu (%s) is done %d times", name, i, apr_op_name(p->ops[i].kind), w.n_done[i]);
    free(w.n_done);
    free(w.is_made);
    free(w.is_planes);
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
        apr_fusion together = fuse(&m.program, true), apart = fuse(&m.program, false);
        check(&m.program, &together, name);
        check(&m.program, &apart, name);
        assert_int_equal(apart.n_steps, m.program.n_ops);
        assert_int_equal(apart.n_planes, 0);
        apr_fusion_close(&together);
        apr_fusion_close(&apart);
        program_model_close(&m);
        n_families++;
    }
    assert_true(n_families >= 20);
}

/* inputs of the first norm once; q k v; rope, rope, store, attend; its output's inputs; o + h; gate up; down + h: two of them leave the
 * next one's inputs. */
static void a_layer_of_llama_takes_nine_steps(void **state)
{
    (void)state;
    static uint8_t mixers[2] = {APR_LAYER_FULL, APR_LAYER_FULL}, ffns[2] = {APR_FFN_DENSE, APR_FFN_DENSE};
    program_model one, two;
    apr_hparams h = program_model_sizes("llama");
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    h.num_experts = 0;
    h.num_layers = 1;
    assert_int_equal(program_model_open(&one, &h, APR_BF16, NULL), APR_OK);
    apr_fusion a = fuse(&one.program, true);
    h.num_layers = 2;
    assert_int_equal(program_model_open(&two, &h, APR_BF16, NULL), APR_OK);
    apr_fusion b = fuse(&two.program, true);
    assert_int_equal(b.n_steps - a.n_steps, 9);
    apr_fusion_close(&a);
    apr_fusion_close(&b);
    program_model_close(&one);
    program_model_close(&two);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_of_every_family_is_done_once_and_in_time),
        cmocka_unit_test(a_layer_of_llama_takes_nine_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
