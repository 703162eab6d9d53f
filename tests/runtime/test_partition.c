/* runtime/plan/partition.h: what is where, what crosses, and what that costs; on the shapes of public models. */
#include "runtime/plan/partition.h"

#include "runtime/plan/plan.h"
#include "runtime/program/op_spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    apr_model model;
    apr_program program;
    uint64_t *weight_bytes, *state_bytes;
} shape;

static shape open_shape(const char *name)
{
    shape s;
    apr_error err = {0};
    char path[128];

    snprintf(path, sizeof path, "tests/data/shapes/%s.json", name);
    if (apr_model_open(&s.model, path, &err) != APR_OK || apr_program_emit(&s.program, &s.model.hparams, &err) != APR_OK)
        fail_msg("%s: %s", name, err.text);
    s.weight_bytes = calloc(s.program.n_weights + 1, sizeof *s.weight_bytes);
    s.state_bytes = calloc(s.program.n_states + 1, sizeof *s.state_bytes);
    assert_true(s.weight_bytes != NULL && s.state_bytes != NULL);
    for (size_t i = 0; i < s.program.n_weights; i++)
        s.weight_bytes[i] = s.program.weights[i].optional ? 0 : apr_plan_slot_bytes(&s.program.weights[i], APR_F16);
    apr_plan_states_bytes(&s.program, APR_F16, 4096, 512, s.state_bytes);
    return s;
}

static void close_shape(shape *s)
{
    free(s->weight_bytes);
    free(s->state_bytes);
    apr_program_close(&s->program);
    apr_model_close(&s->model);
}

static apr_partition divide(const shape *s, int n_devices, apr_offload offload)
{
    const apr_partition_options options = {
        .n_devices = n_devices, .offload = offload, .weight_bytes = s->weight_bytes, .state_bytes = s->state_bytes};
    apr_partition p;
    apr_error err = {0};
    if (apr_partition_make(&p, &s->program, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return p;
}

/* Operation by operation: every input was made where it is read, or copied there once, and every state is where it is used. */
static void check_whole(const shape *s, const apr_partition *p)
{
    const apr_program *const program = &s->program;
    bool *const is_there = calloc(program->n_values * (size_t)p->n_places + 1, sizeof *is_there);
    size_t n_seen = 0;

    assert_non_null(is_there);
    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op *const op = &program->ops[i];
        size_t n;
        const apr_transfer *const t = apr_partition_before(p, i, &n);
        for (size_t j = 0; j < n; j++, n_seen++) {
            assert_true(is_there[t[j].value * p->n_places + t[j].from] && !is_there[t[j].value * p->n_places + t[j].to]);
            is_there[t[j].value * p->n_places + t[j].to] = true;
        }
        for (int j = 0; j < APR_OP_MAX_IN; j++)
            if (op->in[j] >= 0) assert_true(is_there[op->in[j] * p->n_places + p->op_place[i]]);
        if (op->out >= 0) is_there[op->out * p->n_places + p->op_place[i]] = true;
        if (op->state >= 0) assert_int_equal(p->state_place[op->state], p->op_place[i]);
    }
    assert_int_equal(n_seen, p->n_transfers);
    free(is_there);
}

static void every_value_is_copied_before_it_is_read(void **state)
{
    static const char *const names[] = {"llama-3.1-70b", "qwen3-30b-a3b", "gemma-4-e2b", "qwen3-next-80b", "nemotron-3-nano-30b-a3b",
                                        "deepseek-v3",   "gpt-oss-20b",   "lfm2-1.2b",   "llama4-scout"};
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        shape s = open_shape(names[k]);
        bool has_experts = false;
        for (size_t i = 0; i < s.program.n_ops; i++) has_experts |= s.program.ops[i].kind == APR_OP_EXPERTS;
        for (int devices = 0; devices <= 4; devices++)
            for (int64_t layers = 0; layers <= 9; layers += 3) {
                apr_partition p =
                    divide(&s, devices, (apr_offload){has_experts && layers != 3, layers == 9 && devices == 1 ? INT64_MAX : layers});
                check_whole(&s, &p);
                apr_partition_close(&p);
            }
        close_shape(&s);
    }
}

static void the_first_layers_and_the_embedding_are_offloaded(void **state)
{
    (void)state;
    shape s = open_shape("llama-3.1-70b");
    apr_partition p = divide(&s, 1, (apr_offload){.n_layers = 20});
    assert_int_equal(p.n_places, 2);
    for (size_t i = 0; i < s.program.n_ops; i++) {
        const apr_op *const op = &s.program.ops[i];
        if (op->layer >= 0) assert_int_equal(p.on[p.op_place[i]], op->layer < 20 ? APR_ON_HOST : APR_ON_DEVICE);
    }
    assert_int_equal(p.on[p.op_place[0]], APR_ON_HOST);
    assert_int_equal(p.on[p.op_place[s.program.n_ops - 1]], APR_ON_DEVICE);
    const apr_partition_cost cost = apr_partition_cost_of(&p, &s.program, s.weight_bytes);
    assert_int_equal(cost.to_devices, 8192 * 4 + 2 * 64 * 4); /* the residual stream; angles, which all layers share */
    assert_int_equal(cost.to_host, 0);
    apr_partition_close(&p);
    close_shape(&s);
}

static void expert_rows_and_choices_cross_between_places(void **state)
{
    (void)state;
    shape s = open_shape("qwen3-30b-a3b");
    apr_partition p = divide(&s, 1, (apr_offload){.experts = true});
    for (size_t i = 0; i < s.program.n_ops; i++)
        assert_int_equal(p.on[p.op_place[i]], s.program.ops[i].kind == APR_OP_EXPERTS ? APR_ON_HOST : APR_ON_DEVICE);
    const apr_partition_cost cost = apr_partition_cost_of(&p, &s.program, s.weight_bytes);
    assert_int_equal(cost.to_host, 48 * (2048 + 2 * 8 + 1) * 4); /* a row, the numbers and weights of 8 experts, a gap */
    assert_int_equal(cost.to_devices, 48 * 2048 * 4);
    assert_int_equal(cost.host_reads, (uint64_t)48 * 8 * 3 * 2048 * 768 * 2); /* of the 8 chosen of 128 */
    apr_partition_close(&p);
    close_shape(&s);
}

/* --- over several devices --- */

/* Bytes of each device's operations, weights once each; what both ends of a tied model have counts at both. */
static void weigh(const shape *s, const apr_partition *p, uint64_t *sums)
{
    for (int k = 0; k < p->n_places; k++) {
        uint64_t *const here = malloc((s->program.n_weights + 1) * sizeof *here);
        assert_non_null(here);
        memcpy(here, s->weight_bytes, s->program.n_weights * sizeof *here);
        assert_int_equal(apr_partition_keep_weights(p, &s->program, k, here, NULL), APR_OK);
        sums[k] = 0;
        for (size_t i = 0; i < s->program.n_weights; i++) sums[k] += here[i];
        for (size_t i = 0; i < s->program.n_states; i++)
            if (p->state_place[i] == k) sums[k] += s->state_bytes[i];
        free(here);
    }
}

static uint64_t fullest(const shape *s, const apr_partition *p)
{
    uint64_t sums[APR_MAX_PLACES], most = 0;
    weigh(s, p, sums);
    for (int k = 0; k < p->n_places; k++) most = sums[k] > most ? sums[k] : most;
    return most;
}

/* Another cut: layers before a on the first of three devices, before b on the second. */
static apr_partition cut_at(const shape *s, const apr_partition *p, int a, int b)
{
    apr_partition other = *p;
    other.op_place = malloc((s->program.n_ops + 1) * sizeof *other.op_place);
    other.state_place = malloc((s->program.n_states + 1) * sizeof *other.state_place);
    assert_true(other.op_place != NULL && other.state_place != NULL);
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const int layer = s->program.ops[i].layer;
        other.op_place[i] = layer < 0 ? p->op_place[i] : layer < a ? 0 : layer < b ? 1 : 2;
        if (s->program.ops[i].state >= 0) other.state_place[s->program.ops[i].state] = other.op_place[i];
    }
    return other;
}

static void no_other_cut_makes_the_fullest_device_emptier(void **state)
{
    static const char *const names[] = {"qwen2.5-7b", "qwen2.5-1.5b", "gpt-oss-20b"}; /* the second is tied */
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        shape s = open_shape(names[k]);
        apr_partition p = divide(&s, 3, (apr_offload){0});
        const uint64_t least = fullest(&s, &p);
        const int n = (int)s.program.num_layers;
        for (int a = 1; a < n - 1; a++)
            for (int b = a + 1; b < n; b++) {
                apr_partition other = cut_at(&s, &p, a, b);
                assert_true(fullest(&s, &other) >= least);
                free(other.op_place);
                free(other.state_place);
            }
        apr_partition_close(&p);
        close_shape(&s);
    }
}

static void a_larger_device_gets_more_layers(void **state)
{
    (void)state;
    shape s = open_shape("llama-3.1-8b");
    const uint64_t capacities[] = {(uint64_t)8 << 30, (uint64_t)24 << 30};
    const apr_partition_options options = {
        .n_devices = 2, .weight_bytes = s.weight_bytes, .state_bytes = s.state_bytes, .capacities = capacities};
    apr_partition p;
    uint64_t sums[APR_MAX_PLACES];
    assert_int_equal(apr_partition_make(&p, &s.program, &options, NULL), APR_OK);
    weigh(&s, &p, sums);
    assert_true(sums[1] > 2 * sums[0] && sums[1] < 4 * sums[0]);
    apr_partition_close(&p);
    close_shape(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_copied_before_it_is_read),
        cmocka_unit_test(the_first_layers_and_the_embedding_are_offloaded),
        cmocka_unit_test(expert_rows_and_choices_cross_between_places),
        cmocka_unit_test(no_other_cut_makes_the_fullest_device_emptier),
        cmocka_unit_test(a_larger_device_gets_more_layers),
    };
    return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
