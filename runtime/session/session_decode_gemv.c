/* session_decode_gemv.c - a single token in fewer steps than operations: decode GEMVs, fused with the operations after them.
 *
 * Inputs of the GEMVs are in APR_ACTIVATIONS_I16_SLOTS slots after the workspace, used round robin. */
#include "formats/base/bytes.h"
#include "runtime/session/session_internal.h"

#include <stdlib.h>

/* Non-zero if the device has a decode GEMV for this linear layer: one number a type. */
static int gemv_kind_of(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    if (op->kind != APR_OP_LINEAR || op->args.linear.heads.n > 0) return 0;
    const apr_tensor *const weight = at->multiplied[op->weight[0]];
    const int64_t n_in = s->program.values[op->in[0]].width, n_out = s->program.values[op->out].width;
    const bool is_plain = weight->scale == NULL && weight->packing == NULL && weight->pending.kind == APR_STEP_NONE;
    const bool has_right_layout = weight->tiled == (apr_tile_columns(weight->dtype) > 0);
    return is_plain && has_right_layout && s->options.cuda->streams(at->device, weight->dtype, n_out, n_in) ? (int)weight->dtype + 1 : 0;
}

/* Does the decode GEMV take these experts? If so their stacks are tiled (apr_session_is_tiled). */
static bool experts_use_gemv(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    if (op->kind != APR_OP_EXPERTS || op->weight[0] < 0) return false;
    const apr_tensor *const weights[3] = {at->multiplied[op->weight[0]], at->multiplied[op->weight[1]], at->multiplied[op->weight[2]]};
    return apr_session_experts_use_gemv(s, at, op, weights);
}

/* Slots are used round robin: an input must have been read for the last time before its slot is overwritten. */
static bool slots_suffice(const apr_fusion *fusion)
{
    for (size_t i = 0; i + APR_ACTIVATIONS_I16_SLOTS < fusion->n_planes; i++)
        if (fusion->planes[i].last_step >= fusion->planes[i + APR_ACTIVATIONS_I16_SLOTS].first_step) return false;
    return true;
}

int apr_session_source_of_rope(const apr_session *s, const apr_fused *step, int k)
{
    return s->program.ops[step->head_norms[k] >= 0 ? step->head_norms[k] : step->ropes[k]].in[0];
}

bool apr_session_values_overlap(const apr_session *s, const apr_session_place *at, int a, int b)
{
    const int64_t x = at->plan.value_offsets[a], y = at->plan.value_offsets[b];
    return x < y + s->program.values[b].width && y < x + s->program.values[a].width;
}

/* Memory is planned for one operation at a time. The fused Q/K norm, rope and KV write reads all inputs while it writes the query. So
 * the query may share memory only with its own source, at the same address. */
bool apr_session_qkv_epilogues_can_run(const apr_session *s, const apr_session_place *at, const apr_fusion *fusion)
{
    for (size_t i = 0; i < fusion->n_steps; i++) {
        const apr_fused *const step = &fusion->steps[i];
        if (step->store < 0) continue;
        const int query = s->program.ops[step->ropes[0]].out, from = apr_session_source_of_rope(s, step, 0),
                  key = apr_session_source_of_rope(s, step, 1);
        const int value = s->program.ops[step->store].in[1];
        const bool in_place = at->plan.value_offsets[query] == at->plan.value_offsets[from];
        if ((apr_session_values_overlap(s, at, query, from) && !in_place) || apr_session_values_overlap(s, at, query, key) ||
            apr_session_values_overlap(s, at, query, value))
            return false;
        for (int k = 0; k < 2; k++)
            if (apr_session_values_overlap(s, at, query, s->program.ops[step->ropes[k]].in[1])) return false; /* angles */
    }
    return true;
}

int apr_session_result_of(const apr_session *s, const apr_fused *step)
{
    const int last = step->op >= 0 ? step->op : step->linears[0];
    return s->program.ops[step->glu >= 0 ? step->glu : step->add >= 0 ? step->add : last].out;
}

int apr_session_residual_of(const apr_session *s, const apr_fused *step)
{
    const apr_op *const add = &s->program.ops[step->add], *const last = &s->program.ops[step->op >= 0 ? step->op : step->linears[0]];
    return add->in[0] == last->out ? add->in[1] : add->in[0];
}

/* Routes of experts are read until their step ends, which may be after the operation for which the plan kept them. */
static bool routes_stay_valid(const apr_session *s, const apr_session_place *at)
{
    for (size_t i = 0; i < at->fusion.n_steps; i++) {
        const apr_fused *const step = &at->fusion.steps[i];
        if (step->kind == APR_FUSED_EXPERTS &&
            apr_session_values_overlap(s, at, apr_session_result_of(s, step), s->program.ops[step->op].in[1]))
            return false;
    }
    return true;
}

/* Fuses, and checks whether the steps can run with the values' planned addresses. */
static apr_status fuse_as(const apr_session *s, apr_session_place *at, const apr_fusible *can, bool *may_run, apr_error *err)
{
    APR_TRY(apr_fuse(&at->fusion, &s->program, can, err));
    *may_run = slots_suffice(&at->fusion) && apr_session_qkv_epilogues_can_run(s, at, &at->fusion) && routes_stay_valid(s, at);
    if (!*may_run) apr_fusion_close(&at->fusion);
    return APR_OK;
}

apr_status apr_session_fuse(apr_session *s, apr_session_place *at, apr_error *err)
{
    const size_t n_ops = s->program.n_ops;
    bool any = false, may_run = false;

    if (s->n_places > 1 || s->options.no_fusion || s->options.no_replay || s->options.no_direct) return APR_OK;
    int *const gemv_kinds = calloc(n_ops + 1, sizeof *gemv_kinds);
    bool *const qkv_epilogues = calloc(n_ops + 1, sizeof *qkv_epilogues), *const has_gemv = calloc(n_ops + 1, sizeof *has_gemv);
    apr_status status =
        gemv_kinds != NULL && qkv_epilogues != NULL && has_gemv != NULL ? APR_OK : apr_no_memory(err, "the steps of a token");
    for (size_t i = 0; i < n_ops && status == APR_OK; i++) {
        const apr_op *const op = &s->program.ops[i];
        any |= (gemv_kinds[i] = gemv_kind_of(s, at, op)) != 0;
        qkv_epilogues[i] = op->kind == APR_OP_KV_STORE && apr_has_qkv_epilogue(&op->args.kv_store);
        has_gemv[i] = experts_use_gemv(s, at, op);
    }
    if (status == APR_OK && any) status = fuse_as(s, at, &(apr_fusible){gemv_kinds, qkv_epilogues, has_gemv}, &may_run, err);
    if (status == APR_OK && any && !may_run) status = fuse_as(s, at, &(apr_fusible){gemv_kinds, NULL, NULL}, &may_run, err);
    free(gemv_kinds);
    free(qkv_epilogues);
    free(has_gemv);
    if (status != APR_OK) apr_fusion_close(&at->fusion);
    if (status == APR_OK && at->fusion.n_steps > 0) status = s->options.cuda->expect_decode_gemv(at->device, true, err);
    return status;
}

static uint8_t *activations_i16_at(const apr_session_place *at, int planes)
{
    return at->activations_i16 + (uint64_t)(planes % APR_ACTIVATIONS_I16_SLOTS) * at->plan.activations_slot;
}

/* Sums of squares follow the int16 activations. */
static float *squares_at(const apr_session_place *at, int planes, int64_t width)
{
    return (float *)(void *)(activations_i16_at(at, planes) + apr_cuda_round((size_t)apr_activations_i16_bytes(width)));
}

const float *apr_session_vector_at(const apr_session_place *at, int slot)
{
    return slot >= 0 && at->plan.vector_offsets[slot] >= 0 ? at->vectors + at->plan.vector_offsets[slot] : NULL;
}

static const apr_op *norm_of(const apr_session *s, int norm) { return norm >= 0 ? &s->program.ops[norm] : NULL; }

static apr_status run_inputs(const apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    const apr_op *const norm = norm_of(s, step->norm);
    apr_decode_gemv_inputs args = {.n = s->program.values[step->value].width,
                            .x = apr_session_value_at(s, step->value),
                            .norm = norm != NULL,
                            .planes = activations_i16_at(at, step->planes)};
    if (norm != NULL) {
        args.eps = norm->args.norm.eps;
        args.gain = apr_session_vector_at(at, norm->weight[0]);
        args.gain_offset = norm->args.norm.offset;
        if (step->keeps) args.out = apr_session_value_at(s, norm->out);
    }
    return s->options.cuda->decode_gemv_inputs(at->device, &args, err);
}

/* Sets where the products store the next step's input. */
static void set_next_input(const apr_session *s, const apr_session_place *at, const apr_fused *step, int64_t width, apr_decode_gemv_args *args)
{
    const apr_op *const norm = norm_of(s, step->norm);
    if (step->planes < 0) return;
    args->planes = activations_i16_at(at, step->planes);
    if (norm == NULL) return;
    args->gain = apr_session_vector_at(at, norm->weight[0]);
    args->gain_offset = norm->args.norm.offset;
    args->out_squares = squares_at(at, step->planes, width);
}

/* Are steps i and i + 1 products with the same input? */
static bool read_same_input(const apr_fusion *fusion, int64_t i)
{
    if (i < 0 || i + 1 >= (int64_t)fusion->n_steps) return false;
    const apr_fused *const a = &fusion->steps[i], *const b = a + 1;
    return a->kind == APR_FUSED_PRODUCTS && b->kind == APR_FUSED_PRODUCTS && a->inputs == b->inputs;
}

static apr_decode_gemv_args products_of(const apr_session *s, const apr_session_place *at, const apr_fused *step)
{
    const apr_op *const ops = s->program.ops, *const divided = norm_of(s, step->divided);
    const int result = apr_session_result_of(s, step);
    const int64_t i = step - at->fusion.steps;
    apr_decode_gemv_args args = {.ending = step->glu >= 0   ? APR_EPILOGUE_GLU
                                    : step->add >= 0 ? APR_EPILOGUE_ADD
                                                     : APR_EPILOGUE_STORE,
                          .n_parts = step->n_linears,
                          .n_in = s->program.values[ops[step->linears[0]].in[0]].width,
                          .x = activations_i16_at(at, step->inputs)};

    if (divided != NULL) {
        args.squares = squares_at(at, step->inputs, args.n_in);
        args.eps = divided->args.norm.eps;
    }
    for (int k = 0; k < step->n_linears; k++) {
        const apr_op *const op = &ops[step->linears[k]];
        args.parts[k] =
            (apr_decode_gemv_part){at->multiplied[op->weight[0]], apr_session_vector_at(at, op->weight[1]), apr_session_value_at(s, op->out)};
    }
    if (args.ending != APR_EPILOGUE_STORE) args.parts[0].out = step->keeps ? apr_session_value_at(s, result) : NULL;
    if (step->glu >= 0) args.glu = ops[step->glu].args.glu.shape;
    if (step->add >= 0) args.residual = apr_session_value_at(s, apr_session_residual_of(s, step));
    set_next_input(s, at, step, s->program.values[result].width, &args);
    args.is_first = i == 0 || at->fusion.steps[i - 1].kind != APR_FUSED_PRODUCTS;
    return args;
}

/* Two steps with the same input run as one call, that of the first. */
static apr_status run_products(const apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    const int64_t i = step - at->fusion.steps;
    const bool is_second = read_same_input(&at->fusion, i - 1) && !read_same_input(&at->fusion, i - 2);
    apr_decode_gemv_args args, second;

    if (is_second) return APR_OK;
    args = products_of(s, at, step);
    if (read_same_input(&at->fusion, i)) {
        second = products_of(s, at, step + 1);
        args.beside = &second;
    }
    return s->options.cuda->flow(at->device, &args, err);
}

/* Index of the step that makes a value as float32; -1: none. */
static int64_t step_that_makes(const apr_session *s, const apr_fusion *fusion, int value)
{
    for (size_t i = 0; i < fusion->n_steps; i++) {
        const apr_fused *const step = &fusion->steps[i];
        const bool has_result = step->kind == APR_FUSED_OPERATION || step->kind == APR_FUSED_PRODUCTS || step->kind == APR_FUSED_EXPERTS;
        if (has_result && apr_session_result_of(s, step) == value) return (int64_t)i;
    }
    return -1;
}

/* Is everything that the experts read, except their routes, ready before the routes are chosen? Then they may start early; the routing
 * step itself starts after all earlier steps have finished. */
static bool can_start_early(const apr_session *s, const apr_fusion *fusion, const apr_fused *step)
{
    const int64_t chosen = step_that_makes(s, fusion, s->program.ops[step->op].in[1]);
    const int64_t residual = step->add >= 0 ? step_that_makes(s, fusion, apr_session_residual_of(s, step)) : 0;
    if (chosen < 0 || fusion->steps[chosen].kind != APR_FUSED_OPERATION || s->program.ops[fusion->steps[chosen].op].kind != APR_OP_ROUTE)
        return false;
    return fusion->planes[step->inputs].first_step < chosen && residual >= 0 && residual < chosen;
}

static apr_status run_experts(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    const apr_op *const divided = norm_of(s, step->divided);
    const int result = apr_session_result_of(s, step);
    apr_decode_gemv_args gemv = {
        .ending = step->add >= 0 ? APR_EPILOGUE_ADD : APR_EPILOGUE_STORE, .n_parts = 1, .x = activations_i16_at(at, step->inputs)};
    apr_op_args args;

    APR_TRY(apr_session_bind_op(s, at, &s->program.ops[step->op], &args, err));
    gemv.n_in = args.experts.n_in;
    if (divided != NULL) {
        gemv.squares = squares_at(at, step->inputs, gemv.n_in);
        gemv.eps = divided->args.norm.eps;
    }
    gemv.parts[0].out = step->keeps ? apr_session_value_at(s, result) : NULL;
    if (step->add >= 0) gemv.residual = apr_session_value_at(s, apr_session_residual_of(s, step));
    set_next_input(s, at, step, s->program.values[result].width, &gemv);
    gemv.inputs_ready_early = can_start_early(s, &at->fusion, step);
    return s->options.cuda->experts(at->device, &args.experts, &gemv, err);
}

apr_status apr_session_bind_qkv_epilogue(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_qkv_epilogue_args *qkv, apr_error *err)
{
    apr_norm_args *norms[2];
    apr_rope_args *ropes[2];
    apr_op_args args;

    *qkv = (apr_qkv_epilogue_args){.q_norm = {.chunk = 0}};
    norms[0] = &qkv->q_norm, norms[1] = &qkv->k_norm;
    ropes[0] = &qkv->q, ropes[1] = &qkv->k;
    for (int k = 0; k < 2; k++) {
        APR_TRY(apr_session_bind_op(s, at, &s->program.ops[step->ropes[k]], &args, err));
        *ropes[k] = args.rope;
        if (step->head_norms[k] < 0) continue;
        APR_TRY(apr_session_bind_op(s, at, &s->program.ops[step->head_norms[k]], &args, err));
        *norms[k] = args.norm;
    }
    APR_TRY(apr_session_bind_op(s, at, &s->program.ops[step->store], &args, err));
    qkv->store = args.kv_store;
    return APR_OK;
}

static apr_status run_qkv_epilogue(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    apr_qkv_epilogue_args qkv;
    APR_TRY(apr_session_bind_qkv_epilogue(s, at, step, &qkv, err));
    return s->options.cuda->turn(at->device, &qkv, err);
}

static apr_status run_attend(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    apr_op_args args;
    apr_qkv_epilogue_args qkv;
    if (step->store >= 0) APR_TRY(apr_session_bind_qkv_epilogue(s, at, step, &qkv, err));
    APR_TRY(apr_session_bind_op(s, at, &s->program.ops[step->op], &args, err));
    return s->options.cuda->attend_to_i16(at->device, step->store >= 0 ? &qkv : NULL, &args.attend, activations_i16_at(at, step->planes),
                                             err);
}

static apr_status run_step(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    const bool is_product = step->kind == APR_FUSED_OPERATION || step->kind == APR_FUSED_PRODUCTS || step->kind == APR_FUSED_EXPERTS;
    if (s->only_products && !is_product) return APR_OK;
    switch (step->kind) {
    case APR_FUSED_OPERATION: return apr_session_run_op(s, &s->program.ops[step->op], err);
    case APR_FUSED_INPUTS: return run_inputs(s, at, step, err);
    case APR_FUSED_PRODUCTS: return run_products(s, at, step, err);
    case APR_FUSED_QKV_EPILOGUE: return run_qkv_epilogue(s, at, step, err);
    case APR_FUSED_ATTEND: return run_attend(s, at, step, err);
    case APR_FUSED_EXPERTS: return run_experts(s, at, step, err);
    }
    return APR_OK;
}

apr_status apr_session_run_fused(apr_session *s, const apr_session_place *at, apr_error *err)
{
    for (size_t i = 0; i < at->fusion.n_steps; i++) APR_TRY(run_step(s, at, &at->fusion.steps[i], err));
    return APR_OK;
}
