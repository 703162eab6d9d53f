/* session_steps.c - runs a program in fewer steps than operations: on one device products, fused with the operations around them; on the
 * host several linear layers at once.
 *
 * A single token runs decode GEMVs. Their inputs are in APR_ACTIVATIONS_I16_SLOTS slots after the workspace, used round robin.
 *
 * The rows of a step, one sequence each, run small GEMMs (kernels/cuda/rows_args.h). A session runs either all its steps this way or
 * none, except steps that are watched or exact. Fused products add in another order than single ones, and a row's numbers must not depend
 * on the number of rows. Inputs of the products are in slots of the workspace, used round robin. They stay there until they have been
 * read for the last time; no operation in between may use the workspace.
 *
 * A prompt runs GEMMs (kernels/cuda/prompt_args.h). */
#include "formats/base/bytes.h"
#include "kernels/cuda/small_gemm_workspace.h"
#include "runtime/session/session_internal.h"

#include <stdlib.h>

/* Steps that are being run. */
typedef struct running {
    apr_session *s;
    const apr_session_batch *b;
    const apr_session_place *at;
    const apr_fusion *fusion;
} running;

/* --- steps of any kind --- */

/* The value before norm and rope: of the query (k = 0) or the key (1). */
static int source_of_rope(const apr_session *s, const apr_fused *step, int k)
{
    return s->program.ops[step->head_norms[k] >= 0 ? step->head_norms[k] : step->ropes[k]].in[0];
}

static bool values_overlap(const apr_session *s, const apr_session_place *at, int a, int b)
{
    return apr_values_overlap(&s->program, at->plan.value_offsets, a, b);
}

/* Memory is planned for one operation at a time. The fused Q/K norm, rope and KV write reads all inputs while it writes the query. So
 * the query may share memory only with its own source, at the same address. */
static bool qkv_epilogue_can_run(const apr_session *s, const apr_session_place *at, const apr_fused *step)
{
    const int query = s->program.ops[step->ropes[0]].out, source = source_of_rope(s, step, 0);
    const int others[] = {source_of_rope(s, step, 1), s->program.ops[step->store].in[1], s->program.ops[step->ropes[0]].in[1],
                          s->program.ops[step->ropes[1]].in[1]}; /* key and value, angles */
    const bool in_place = at->plan.value_offsets[query] == at->plan.value_offsets[source];

    if (!in_place && values_overlap(s, at, query, source)) return false;
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        if (values_overlap(s, at, query, others[k])) return false;
    return true;
}

static bool qkv_epilogues_can_run(const apr_session *s, const apr_session_place *at, const apr_fusion *fusion)
{
    for (size_t i = 0; i < fusion->n_steps; i++)
        if (fusion->steps[i].store >= 0 && !qkv_epilogue_can_run(s, at, &fusion->steps[i])) return false;
    return true;
}

/* The operation of a step that is not fused, its experts, or its first product. */
static const apr_op *first_op(const apr_session *s, const apr_fused *step)
{
    return &s->program.ops[step->op >= 0 ? step->op : step->linears[0]];
}

/* The value that a step's products or experts produce. */
static int result_of(const apr_session *s, const apr_fused *step)
{
    const int last = step->glu >= 0 ? step->glu : step->add;
    return last >= 0 ? s->program.ops[last].out : first_op(s, step)->out;
}

/* The residual that is added. */
static int residual_of(const apr_session *s, const apr_fused *step)
{
    const apr_op *const add = &s->program.ops[step->add];
    return add->in[0] == first_op(s, step)->out ? add->in[1] : add->in[0];
}

/* A slot's vector on the device; NULL for slot -1 and for absent vectors. */
static const float *vector_at(const apr_session_place *at, int slot)
{
    return slot >= 0 && at->plan.vector_offsets[slot] >= 0 ? at->vectors + at->plan.vector_offsets[slot] : NULL;
}

static bool makes_logits(const apr_session *s, const apr_op *op) { return op->out >= 0 && s->program.values[op->out].is_logits; }

static const apr_op *norm_of(const apr_session *s, int norm) { return norm >= 0 ? &s->program.ops[norm] : NULL; }

static apr_status bind_op(const running *r, int op, apr_op_args *args, apr_error *err)
{
    return apr_session_bind_op(r->s, r->b, r->at, &r->s->program.ops[op], args, err);
}

static apr_status bind_qkv_epilogue(const running *r, const apr_fused *step, apr_qkv_epilogue_args *qkv, apr_error *err)
{
    apr_norm_args *const norms[2] = {&qkv->q_norm, &qkv->k_norm};
    apr_rope_args *const rotated[2] = {&qkv->q, &qkv->k};
    apr_op_args args;

    *qkv = (apr_qkv_epilogue_args){.q_norm = {.chunk = 0}};
    for (int k = 0; k < 2; k++) {
        APR_TRY(bind_op(r, step->ropes[k], &args, err));
        *rotated[k] = args.rope;
        if (step->head_norms[k] < 0) continue;
        APR_TRY(bind_op(r, step->head_norms[k], &args, err));
        *norms[k] = args.norm;
    }
    APR_TRY(bind_op(r, step->store, &args, err));
    qkv->store = args.kv_store;
    return APR_OK;
}

static apr_epilogue epilogue_of(const apr_fused *step)
{
    return step->glu >= 0 ? APR_EPILOGUE_GLU : step->add >= 0 ? APR_EPILOGUE_ADD : APR_EPILOGUE_STORE;
}

static apr_prompt_epilogue prompt_epilogue_of(const apr_fused *step)
{
    if (step->store >= 0) return APR_PROMPT_QKV;
    return step->glu >= 0 ? APR_PROMPT_GLU : step->writes_f32 ? APR_PROMPT_STORE : APR_PROMPT_UNSCALED;
}

static int64_t input_width(const apr_session *s, const apr_fused *step) { return s->program.values[first_op(s, step)->in[0]].width; }

/* The matrices of a step's products, what their GLU computes and the residual that is added, as tokens and rows pass them. */
static void set_parts(const running *r, const apr_fused *step, apr_decode_gemv_part *parts, apr_glu_shape *glu, const float **residual)
{
    const apr_session *const s = r->s;
    for (int k = 0; k < step->n_linears; k++) {
        const apr_op *const op = &s->program.ops[step->linears[k]];
        parts[k] =
            (apr_decode_gemv_part){r->at->multiplied[op->weight[0]], vector_at(r->at, op->weight[1]), apr_session_value_at(s, op->out)};
    }
    if (step->glu >= 0) *glu = s->program.ops[step->glu].args.glu.shape;
    if (step->add >= 0) *residual = apr_session_value_at(s, residual_of(s, step));
}

static apr_status run_operation(const running *r, apr_fused *step, apr_error *err)
{
    return apr_session_run_op(r->s, r->b, &r->s->program.ops[step->op], err);
}

static apr_status run_qkv_epilogue(const running *r, apr_fused *step, apr_error *err)
{
    apr_qkv_epilogue_args qkv;
    APR_TRY(bind_qkv_epilogue(r, step, &qkv, err));
    return r->s->options.cuda->qkv_epilogue(r->at->device, &qkv, err);
}

/* --- latent attention --- */

/* Memory is planned for one operation at a time: the joined query may share it with the query that is read, if that is not fused. */
static bool can_fuse_latent_query(const apr_session *s, const apr_session_place *at, const apr_op *rope)
{
    const apr_op *const join = rope + APR_LATENT_QUERY_JOIN, *const absorb = rope + APR_LATENT_ABSORB;
    const apr_op *const end = s->program.ops + s->program.n_ops;
    return join < end && join->kind == APR_OP_JOIN && absorb->kind == APR_OP_LINEAR && absorb->args.linear.heads.n > 0 &&
           rope->args.rope.head_dim % 4 == 0 && !values_overlap(s, at, rope->in[0], join->out);
}

static bool can_fuse_latent_store(const apr_session *s, const apr_op *slice)
{
    const apr_op *const store = slice + APR_LATENT_KV_STORE;
    return store < s->program.ops + s->program.n_ops && store->kind == APR_OP_KV_STORE &&
           store->args.kv_store.key_dim <= APR_LATENT_MAX_DIM;
}

/* Does a latent query or store that is fused begin with the operation? */
static bool begins_latent(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    if (s->options.cuda->latent_query == NULL) return false;
    return op->kind == APR_OP_ROPE ? can_fuse_latent_query(s, at, op) : op->kind == APR_OP_SLICE && can_fuse_latent_store(s, op);
}

static apr_status bind_latent_store(const running *r, int slice, apr_latent_store_args *to, apr_error *err)
{
    apr_op_args args;

    APR_TRY(bind_op(r, slice + APR_LATENT_NORM, &args, err));
    to->norm = args.norm;
    to->norm.x = apr_session_value_at(r->s, r->s->program.ops[slice].in[0]);
    APR_TRY(bind_op(r, slice + APR_LATENT_STORE_ROPE, &args, err));
    to->rope = args.rope;
    APR_TRY(bind_op(r, slice + APR_LATENT_KV_STORE, &args, err));
    to->store = args.kv_store;
    return APR_OK;
}

static apr_status run_latent_query(const running *r, apr_fused *step, apr_error *err)
{
    const bool has_store = step->latent_store >= 0;
    apr_latent_query_args to;
    apr_latent_store_args store;
    apr_op_args args;

    if (r->s->only_products) return apr_session_run_op(r->s, r->b, &r->s->program.ops[step->op + APR_LATENT_ABSORB], err);
    APR_TRY(bind_op(r, step->op, &args, err));
    to.rope = args.rope;
    APR_TRY(bind_op(r, step->op + APR_LATENT_ABSORB, &args, err));
    to.absorb = args.linear;
    APR_TRY(bind_op(r, step->op + APR_LATENT_QUERY_JOIN, &args, err));
    to.out = args.join.out;
    if (has_store) APR_TRY(bind_latent_store(r, step->latent_store, &store, err));
    return r->s->options.cuda->latent_query(r->at->device, &to, has_store ? &store : NULL, err);
}

static apr_status run_latent_store(const running *r, apr_fused *step, apr_error *err)
{
    apr_latent_store_args to;
    APR_TRY(bind_latent_store(r, step->op, &to, err));
    return r->s->options.cuda->latent_store(r->at->device, &to, err);
}

/* --- finding steps --- */

/* What a batch takes of an operation (apr_fusible, QKV epilogues aside), and whether steps can run with the values' planned addresses. */
typedef struct fusing {
    int (*takes)(const apr_session *s, const apr_session_place *at, const apr_op *op);
    bool (*may_run)(const apr_session *s, const apr_session_place *at, const apr_fusion *fusion);
    apr_fused_batch batch;
} fusing;

static bool is_dense(const apr_op *op) { return op->kind == APR_OP_LINEAR && op->args.linear.heads.n == 0; }

/* Finds the steps of a batch; none where fusion would be wrong. `every`: QKV epilogues and experts also. */
static apr_status fuse_some(const apr_session *s, const apr_session_place *at, const fusing *how, bool every, apr_fusion *fusion,
                            apr_error *err)
{
    bool any = false;
    int *const takes = calloc(s->program.n_ops + 1, sizeof *takes);
    apr_status status = takes != NULL ? APR_OK : apr_no_memory(err, "fused steps");

    for (size_t i = 0; i < s->program.n_ops && status == APR_OK; i++) {
        const apr_op *const op = &s->program.ops[i];
        if (!every && (op->kind == APR_OP_KV_STORE || op->kind == APR_OP_EXPERTS)) continue;
        takes[i] = op->kind == APR_OP_KV_STORE                           ? apr_has_qkv_epilogue(&op->args.kv_store)
                   : op->kind == APR_OP_ROPE || op->kind == APR_OP_SLICE ? begins_latent(s, at, op)
                                                                         : how->takes(s, at, op);
        any |= op->kind == APR_OP_LINEAR && takes[i] != 0;
    }
    const apr_fusible can = {.takes = takes,
                             .vector_offsets = how->batch == APR_FUSED_OF_PROMPT ? at->plan.vector_offsets : NULL,
                             .value_offsets = at->plan.value_offsets,
                             .batch = how->batch};
    if (status == APR_OK && any) status = apr_fuse(fusion, &s->program, &can, err);
    free(takes);
    if (status != APR_OK || !how->may_run(s, at, fusion)) apr_fusion_close(fusion);
    return status;
}

/* --- steps of a single token --- */

/* Non-zero if the device has a decode GEMV for this linear layer: one number a type. */
static int gemv_kind_of(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    const apr_tensor *const weight = at->multiplied[op->weight[0]];
    const int64_t n_in = s->program.values[op->in[0]].width, n_out = s->program.values[op->out].width;
    const bool has_right_layout = weight->tiled == (apr_tile_columns(weight->dtype) > 0);
    return apr_tensor_is_plain(weight) && has_right_layout && s->options.cuda->has_decode_gemv(at->device, weight->dtype, n_out, n_in)
               ? (int)weight->dtype + 1
               : 0;
}

/* If it takes experts their stacks are tiled (apr_session_is_tiled). */
static int token_takes(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    if (is_dense(op)) return gemv_kind_of(s, at, op);
    if (op->kind != APR_OP_EXPERTS || op->weight[0] < 0) return 0;
    const apr_tensor *const weights[3] = {at->multiplied[op->weight[0]], at->multiplied[op->weight[1]], at->multiplied[op->weight[2]]};
    return apr_session_experts_use_gemv(s, at, op, weights);
}

/* Slots are used round robin: an input must have been read for the last time before its slot is overwritten. */
static bool slots_suffice(const apr_fusion *fusion, size_t n_slots)
{
    for (size_t i = 0; i + n_slots < fusion->n_activations; i++)
        if (fusion->activations[i].last_step >= fusion->activations[i + n_slots].first_step) return false;
    return true;
}

/* Routes of experts are read until their step ends, which may be after the operation for which the plan kept them. */
static bool token_may_run(const apr_session *s, const apr_session_place *at, const apr_fusion *fusion)
{
    for (size_t i = 0; i < fusion->n_steps; i++) {
        const apr_fused *const step = &fusion->steps[i];
        if (step->kind == APR_FUSED_EXPERTS && values_overlap(s, at, result_of(s, step), s->program.ops[step->op].in[1])) return false;
    }
    return slots_suffice(fusion, APR_ACTIVATIONS_I16_SLOTS) && qkv_epilogues_can_run(s, at, fusion);
}

/* --- steps of the rows of several sequences --- */

static int64_t widest_input(const apr_session *s)
{
    int64_t most = 0;
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        if (is_dense(op) && s->program.values[op->in[0]].width > most) most = s->program.values[op->in[0]].width;
    }
    return most;
}

/* The matrix of a linear layer that the device has a small GEMM for; NULL. Routers have a kernel of their own. */
static const apr_tensor *rows_matrix_of(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    if (!is_dense(op) || op->args.linear.is_router) return NULL;
    const apr_tensor *const weight = at->multiplied[op->weight[0]];
    const int64_t n_in = s->program.values[op->in[0]].width, n_out = s->program.values[op->out].width;
    return s->options.cuda->has_rows(at->device, weight, n_out, n_in, at->rows_widest, &at->work) ? weight : NULL;
}

/* Non-zero for a linear layer that goes with the others of a step: one number for each type and layout. All products of a session share one
 * type and layout of inputs: BF16 matrices need BF16 inputs, all others FP16. */
static int rows_take(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    const apr_tensor *const weight = rows_matrix_of(s, at, op);
    return weight != NULL && (weight->dtype == APR_BF16) == at->rows_bf16 ? 2 * (int)weight->dtype + weight->tiled + 1 : 0;
}

/* Are all these matrices BF16? Otherwise those that are run as operations. */
static bool all_are_bf16(const apr_session *s, const apr_session_place *at)
{
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_tensor *const weight = rows_matrix_of(s, at, &s->program.ops[i]);
        if (weight != NULL && weight->dtype != APR_BF16) return false;
    }
    return true;
}

/* Do all products of these inputs have types with a WGMMA kernel? It needs another layout. */
static bool uses_wgmma(const apr_session *s, const apr_session_place *at, const apr_fusion *fusion, int activations)
{
    for (size_t i = 0; i < fusion->n_steps; i++)
        for (int k = 0; k < fusion->steps[i].n_linears && fusion->steps[i].inputs == activations; k++)
            if (!apr_small_gemm_has_wgmma(at->multiplied[s->program.ops[fusion->steps[i].linears[k]].weight[0]]->dtype)) return false;
    return true;
}

/* Operations that never use the workspace. */
static bool avoids_workspace(apr_op_kind kind)
{
    static const bool are[APR_OP_COUNT] = {[APR_OP_NORM] = true,  [APR_OP_ROPE] = true, [APR_OP_KV_STORE] = true, [APR_OP_ADD] = true,
                                           [APR_OP_SLICE] = true, [APR_OP_JOIN] = true, [APR_OP_SCALE] = true,    [APR_OP_MUL] = true};
    return are[kind];
}

static bool may_stand_between(const apr_session *s, const apr_fused *step)
{
    if (step->kind == APR_FUSED_OPERATION) return avoids_workspace(s->program.ops[step->op].kind);
    return step->kind == APR_FUSED_PRODUCTS || step->kind == APR_FUSED_INPUTS || step->kind == APR_FUSED_QKV_EPILOGUE ||
           step->kind == APR_FUSED_LATENT_STORE;
}

/* Every input must stay in its slot until it has been read for the last time. */
static bool rows_may_run(const apr_session *s, const apr_session_place *at, const apr_fusion *fusion)
{
    for (size_t i = 0; i < fusion->n_activations; i++) {
        const apr_fused_activations *const p = &fusion->activations[i];
        for (int k = p->first_step + 1; k < p->last_step; k++)
            if (!may_stand_between(s, &fusion->steps[k])) return false;
    }
    return slots_suffice(fusion, APR_ROWS_SLOTS) && qkv_epilogues_can_run(s, at, fusion);
}

/* The norm whose output, read only by the logits' product, is stored only as a product's input; -1: none. */
static int norm_of_logits(const apr_session *s, const apr_session_place *at)
{
    for (size_t i = 0; i < at->fusion.n_steps; i++) {
        const apr_fused *const step = &at->fusion.steps[i];
        if (step->kind != APR_FUSED_PRODUCTS || !makes_logits(s, first_op(s, step))) continue;
        for (size_t k = 0; k < i; k++)
            if (at->fusion.steps[k].activations == step->inputs) return at->fusion.steps[k].norm;
    }
    return -1;
}

static apr_status fuse_rows(const apr_session *s, apr_session_place *at, apr_error *err)
{
    at->rows_widest = widest_input(s);
    at->rows_bf16 = all_are_bf16(s, at);
    APR_TRY(fuse_some(s, at, &(fusing){rows_take, rows_may_run, APR_FUSED_OF_ROWS}, true, &at->fusion, err));
    for (size_t i = 0; i < at->fusion.n_activations; i++) at->fusion.activations[i].is_wgmma = uses_wgmma(s, at, &at->fusion, (int)i);
    at->logits_norm = norm_of_logits(s, at);
    return APR_OK;
}

/* --- steps of a prompt --- */

/* Products whose inputs share one scale are not of one call with others, and do not read a GLU. */
static int prompt_takes(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    const apr_value *const values = s->program.values;
    if (op->kind == APR_OP_NORM)
        return apr_prompt_has_norm(op->args.norm.kind, values[op->out].width, op->args.norm.chunk, op->args.norm.n_weight);
    if (op->kind == APR_OP_GLU)
        return apr_prompt_has_glu(values[op->out].width) && op + 1 < s->program.ops + s->program.n_ops && prompt_takes(s, at, op + 1) == 1;
    if (!is_dense(op) || makes_logits(s, op)) return 0;
    return 1 + apr_prompt_shares_scale(APR_PROMPT_MIN_TOKENS, values[op->in[0]].width, values[op->out].width,
                                       vector_at(at, op->weight[1]) != NULL);
}

/* --- which steps a session has --- */

/* Without QKV epilogues and experts, if steps with them cannot run. */
static apr_status fuse_most(const apr_session *s, const apr_session_place *at, const fusing *how, apr_fusion *fusion, apr_error *err)
{
    APR_TRY(fuse_some(s, at, how, true, fusion, err));
    return fusion->n_steps > 0 ? APR_OK : fuse_some(s, at, how, false, fusion, err);
}

apr_status apr_session_fuse(apr_session *s, apr_session_place *at, apr_error *err)
{
    static const fusing token = {token_takes, token_may_run, APR_FUSED_OF_TOKEN},
                        prompt = {prompt_takes, qkv_epilogues_can_run, APR_FUSED_OF_PROMPT};

    if (s->n_places > 1 || s->options.no_fusion || s->options.no_direct) return APR_OK;
    if (s->positions != NULL) APR_TRY(fuse_rows(s, at, err));
    else if (!s->options.no_replay) APR_TRY(fuse_most(s, at, &token, &at->fusion, err));
    if (at->fusion.n_steps > 0) APR_TRY(s->options.cuda->expect_decode_gemv(at->device, true, err));
    return fuse_most(s, at, &prompt, &at->prompt, err);
}

/* --- a single token: running --- */

static uint8_t *activations_i16_at(const apr_session_place *at, int activations)
{
    return at->activations_i16 + (uint64_t)(activations % APR_ACTIVATIONS_I16_SLOTS) * at->plan.activations_slot;
}

/* Sums of squares follow the int16 activations. */
static float *squares_at(const apr_session_place *at, int activations, int64_t width)
{
    return (float *)(void *)(activations_i16_at(at, activations) + apr_cuda_round((size_t)apr_activations_i16_bytes(width)));
}

static apr_status token_run_inputs(const running *r, apr_fused *step, apr_error *err)
{
    const apr_session *const s = r->s;
    const apr_op *const norm = norm_of(s, step->norm);
    apr_decode_gemv_inputs args = {.n = s->program.values[step->value].width,
                                   .x = apr_session_value_at(s, step->value),
                                   .norm = norm != NULL,
                                   .activations_out = activations_i16_at(r->at, step->activations)};
    if (norm != NULL) {
        args.eps = norm->args.norm.eps;
        args.gain = vector_at(r->at, norm->weight[0]);
        args.gain_offset = norm->args.norm.offset;
    }
    if (step->normed >= 0) args.out = apr_session_value_at(s, s->program.ops[step->normed].out);
    if (step->add >= 0) {
        args.x = apr_session_value_at(s, s->program.ops[step->add].in[0]);
        args.addend = apr_session_value_at(s, s->program.ops[step->add].in[1]);
        args.sum = apr_session_value_at(s, step->value);
    }
    return s->options.cuda->decode_gemv_inputs(r->at->device, &args, err);
}

/* Of products, or of experts, whose matrices are not among these arguments. */
static apr_decode_gemv_args gemv_of(const running *r, const apr_fused *step)
{
    const apr_session *const s = r->s;
    const apr_op *const divided = norm_of(s, step->divided), *const norm = norm_of(s, step->norm);
    const int result = result_of(s, step);
    apr_decode_gemv_args args = {.epilogue = epilogue_of(step),
                                 .n_parts = step->kind == APR_FUSED_EXPERTS ? 1 : step->n_linears,
                                 .n_in = input_width(s, step),
                                 .activations = activations_i16_at(r->at, step->inputs)};

    if (divided != NULL) {
        args.squares = squares_at(r->at, step->inputs, args.n_in);
        args.eps = divided->args.norm.eps;
    }
    set_parts(r, step, args.parts, &args.glu, &args.residual);
    if (step->n_linears == 0 || args.epilogue != APR_EPILOGUE_STORE)
        args.parts[0].out = step->writes_f32 ? apr_session_value_at(s, result) : NULL;
    if (step->activations >= 0) args.activations_out = activations_i16_at(r->at, step->activations);
    if (norm == NULL) return args;
    args.gain = vector_at(r->at, norm->weight[0]);
    args.gain_offset = norm->args.norm.offset;
    args.out_squares = squares_at(r->at, step->activations, s->program.values[result].width);
    return args;
}

static apr_status token_run_products(const running *r, apr_fused *step, apr_error *err)
{
    apr_decode_gemv_args args = gemv_of(r, step), second;
    args.is_first = step == r->fusion->steps || step[-1].kind != APR_FUSED_PRODUCTS;
    if (step->with_next) {
        second = gemv_of(r, step + 1);
        args.concurrent = &second;
    }
    return r->s->options.cuda->decode_gemv(r->at->device, &args, err);
}

/* Index of the step that makes a value as float32; -1: none. */
static int64_t step_that_makes(const apr_session *s, const apr_fusion *fusion, int value)
{
    for (size_t i = 0; i < fusion->n_steps; i++) {
        const apr_fused *const step = &fusion->steps[i];
        if (step->kind == APR_FUSED_INPUTS && step->add >= 0 && step->value == value) return (int64_t)i;
        const bool has_result = step->kind == APR_FUSED_OPERATION || step->kind == APR_FUSED_PRODUCTS || step->kind == APR_FUSED_EXPERTS;
        if (has_result && result_of(s, step) == value) return (int64_t)i;
    }
    return -1;
}

/* Is everything that the experts read, except their routes, ready before the routes are chosen? Then they may start early; the routing
 * step itself starts after all earlier steps have finished. */
static bool can_start_early(const apr_session *s, const apr_fusion *fusion, const apr_fused *step)
{
    const int64_t chosen = step_that_makes(s, fusion, s->program.ops[step->op].in[1]);
    const int64_t residual = step->add >= 0 ? step_that_makes(s, fusion, residual_of(s, step)) : 0;
    if (chosen < 0 || fusion->steps[chosen].kind != APR_FUSED_OPERATION || s->program.ops[fusion->steps[chosen].op].kind != APR_OP_ROUTE)
        return false;
    return fusion->activations[step->inputs].first_step < chosen && residual >= 0 && residual < chosen;
}

static apr_status token_run_experts(const running *r, apr_fused *step, apr_error *err)
{
    apr_decode_gemv_args gemv = gemv_of(r, step);
    apr_op_args args;

    gemv.inputs_ready_early = can_start_early(r->s, r->fusion, step);
    APR_TRY(bind_op(r, step->op, &args, err));
    return r->s->options.cuda->experts(r->at->device, &args.experts, &gemv, err);
}

static apr_status token_run_attend(const running *r, apr_fused *step, apr_error *err)
{
    apr_op_args args;
    apr_qkv_epilogue_args qkv;
    if (step->store >= 0) APR_TRY(bind_qkv_epilogue(r, step, &qkv, err));
    APR_TRY(bind_op(r, step->op, &args, err));
    return r->s->options.cuda->attend_to_i16(r->at->device, step->store >= 0 ? &qkv : NULL, &args.attend,
                                             activations_i16_at(r->at, step->activations), err);
}

/* --- rows of sequences: running --- */

static bool may_fuse_rows(const apr_session *s, const apr_session_place *at)
{
    return s->positions != NULL && at->fusion.n_steps > 0 && !s->exact && !s->only_products && s->watch == NULL;
}

int64_t apr_session_rows_at_once(const apr_session *s, int64_t n_rows)
{
    const apr_session_place *const at = &s->places[0];
    const int64_t most = at->plan.n_logits < APR_ROWS_MAX_TOKENS ? at->plan.n_logits : (int64_t)APR_ROWS_MAX_TOKENS,
                  n = (n_rows + most - 1) / most;
    return may_fuse_rows(s, at) ? (n_rows + n - 1) / n : n_rows;
}

static apr_rows_workspace workspace_of(const apr_session_place *at)
{
    return (apr_rows_workspace){at->work, at->rows_widest, at->rows_bf16};
}

static apr_rows_output next_input_of(const running *r, const apr_fused *step)
{
    apr_rows_output next = {.slot = step->activations >= 0 ? step->activations % APR_ROWS_SLOTS : -1};
    const apr_op *const norm = norm_of(r->s, step->norm >= 0 ? step->norm : step->normed);
    if (step->activations >= 0) next.is_wgmma = r->fusion->activations[step->activations].is_wgmma;
    if (norm == NULL) return next;
    next.norm = true;
    next.eps = norm->args.norm.eps;
    next.gain = vector_at(r->at, norm->weight[0]);
    next.gain_offset = norm->args.norm.offset;
    return next;
}

/* The norm's output as float32, if that is written; NULL. */
static float *normed_of(const running *r, const apr_fused *step)
{
    return step->normed >= 0 ? apr_session_value_at(r->s, r->s->program.ops[step->normed].out) : NULL;
}

static apr_rows_inputs inputs_of(const running *r, const apr_fused *step, int value)
{
    return (apr_rows_inputs){.workspace = workspace_of(r->at),
                             .n_tokens = r->b->n_tokens,
                             .width = r->s->program.values[value].width,
                             .x = apr_session_value_at(r->s, value),
                             .out = normed_of(r, step),
                             .output = next_input_of(r, step)};
}

static apr_status write_inputs(const running *r, const apr_fused *step, int value, apr_error *err)
{
    const apr_rows_inputs args = inputs_of(r, step, value);
    return r->s->options.cuda->rows_inputs(r->at->device, &args, err);
}

static apr_status rows_run_inputs(const running *r, apr_fused *step, apr_error *err) { return write_inputs(r, step, step->value, err); }

static apr_status rows_run_products(const running *r, apr_fused *step, apr_error *err)
{
    apr_qkv_epilogue_args qkv;
    apr_rows_args args = {.workspace = workspace_of(r->at),
                          .epilogue = epilogue_of(step),
                          .n_tokens = r->b->n_tokens,
                          .n_in = input_width(r->s, step),
                          .slot = step->inputs % APR_ROWS_SLOTS,
                          .is_wgmma = r->fusion->activations[step->inputs].is_wgmma,
                          .n_parts = step->n_linears,
                          .output = next_input_of(r, step),
                          .normed = normed_of(r, step)};

    set_parts(r, step, args.parts, &args.glu, &args.residual);
    if (args.epilogue != APR_EPILOGUE_STORE && (step->writes_f32 || args.output.norm))
        args.out = apr_session_value_at(r->s, result_of(r->s, step));
    if (step->store >= 0) {
        APR_TRY(bind_qkv_epilogue(r, step, &qkv, err));
        args.qkv = &qkv;
    }
    return r->s->options.cuda->rows(r->at->device, &args, err);
}

static apr_status rows_run_attend(const running *r, apr_fused *step, apr_error *err)
{
    if (step->store >= 0) APR_TRY(run_qkv_epilogue(r, step, err));
    APR_TRY(run_operation(r, step, err));
    return write_inputs(r, step, r->s->program.ops[step->op].out, err);
}

static apr_status rows_run_experts(const running *r, apr_fused *step, apr_error *err)
{
    const int sum = result_of(r->s, step);
    apr_op_args args;

    APR_TRY(bind_op(r, step->op, &args, err));
    const apr_rows_experts all = {.experts = args.experts,
                                  .residual = apr_session_value_at(r->s, residual_of(r->s, step)),
                                  .sum = apr_session_value_at(r->s, sum),
                                  .inputs = inputs_of(r, step, sum)};
    return r->s->options.cuda->rows_experts(r->at->device, &all, err);
}

/* --- a prompt: running --- */

/* If the step before left its product without scales, that is the addend, whichever operand of the sum it is. */
static apr_status bind_prompt_inputs(const running *r, const apr_fused *step, apr_prompt_args *to, apr_error *err)
{
    const apr_fused *const before = step->before >= 0 ? &r->fusion->steps[step->before] : NULL;
    const apr_prompt_epilogue end = before != NULL ? prompt_epilogue_of(before) : APR_PROMPT_STORE;
    const apr_op *const ops = r->s->program.ops;
    apr_op_args args;

    to->input_is_glu = end == APR_PROMPT_GLU;
    to->addend_is_unscaled = end == APR_PROMPT_UNSCALED;
    if (step->norm >= 0) {
        APR_TRY(bind_op(r, step->norm, &args, err));
        to->has_norm = true;
        to->norm = args.norm;
    }
    if (step->add < 0) return APR_OK;
    APR_TRY(bind_op(r, step->add, &args, err));
    const bool is_first = to->addend_is_unscaled && ops[before->linears[0]].out == ops[step->add].in[0];
    to->has_sum = true;
    to->residual = is_first ? args.add.b : args.add.a;
    to->addend = is_first ? args.add.a : args.add.b;
    to->sum = args.add.out;
    return APR_OK;
}

static apr_status run_prompt(const running *r, apr_fused *step, apr_error *err)
{
    apr_prompt_args to = {.n_parts = step->n_linears, .epilogue = prompt_epilogue_of(step)};
    apr_op_args args;

    APR_TRY(bind_prompt_inputs(r, step, &to, err));
    for (int k = 0; k < step->n_linears; k++) {
        APR_TRY(bind_op(r, step->linears[k], &args, err));
        to.parts[k] = args.linear;
    }
    if (step->glu >= 0) {
        APR_TRY(bind_op(r, step->glu, &args, err));
        to.glu = args.glu;
        to.row_sums = step->row_sums;
    }
    if (step->store >= 0) APR_TRY(bind_qkv_epilogue(r, step, &to.qkv, err));
    return r->s->options.cuda->prompt(r->at->device, &to, err);
}

/* --- running the steps of a token, of rows or of a prompt --- */

typedef apr_status (*run_fn)(const running *r, apr_fused *step, apr_error *err);

/* Of a token, of rows, of a prompt. NULL: that batch never has such a step. */
static const run_fn runs[APR_FUSED_KINDS][APR_FUSED_BATCHES] = {
    [APR_FUSED_OPERATION] = {run_operation, run_operation, run_operation},
    [APR_FUSED_INPUTS] = {token_run_inputs, rows_run_inputs, NULL},
    [APR_FUSED_PRODUCTS] = {token_run_products, rows_run_products, NULL},
    [APR_FUSED_QKV_EPILOGUE] = {run_qkv_epilogue, run_qkv_epilogue, NULL},
    [APR_FUSED_ATTEND] = {token_run_attend, rows_run_attend, NULL},
    [APR_FUSED_LATENT_QUERY] = {run_latent_query, run_latent_query, run_latent_query},
    [APR_FUSED_LATENT_STORE] = {run_latent_store, run_latent_store, run_latent_store},
    [APR_FUSED_EXPERTS] = {token_run_experts, rows_run_experts, NULL},
    [APR_FUSED_PROMPT] = {NULL, NULL, run_prompt},
};

static apr_status run_step(const running *r, apr_fused *step, apr_error *err)
{
    const bool is_product = step->kind == APR_FUSED_OPERATION || step->kind == APR_FUSED_PRODUCTS || step->kind == APR_FUSED_EXPERTS ||
                            step->kind == APR_FUSED_LATENT_QUERY;
    return r->s->only_products && !is_product ? APR_OK : runs[step->kind][r->fusion->batch](r, step, err);
}

/* A value of a prompt's step that its operations leave in memory. */
static apr_status store_kept_of(const running *r, const apr_kept *kept, const apr_fused *step, apr_error *err)
{
    const int op = step->kind == APR_FUSED_OPERATION ? step->op : step->kind == APR_FUSED_PROMPT ? step->add : -1;
    return op >= 0 ? apr_session_store_kept(r->s, r->b, kept, r->s->program.ops[op].out, err) : APR_OK;
}

/* The first step of an evaluation that begins with some kept values; it may lack its sum, and is run then. */
static apr_status begin_steps(const running *r, const apr_kept *kept, size_t *first, apr_error *err)
{
    *first = 0;
    if (kept == NULL || kept->begin == 0) return APR_OK;
    *first = apr_session_prompt_step(r->at, kept->begin);
    if (!apr_session_begins_after_sum(&r->fusion->steps[*first], kept->begin)) return APR_OK;
    apr_fused rest = r->fusion->steps[(*first)++];
    rest.add = rest.before = -1;
    return run_prompt(r, &rest, err);
}

/* Without logits also what only they need is left out. kept: values of a prompt that are kept, or that it begins with; NULL: none. */
static apr_status run_steps(apr_session *s, const apr_session_batch *b, const apr_fusion *fusion, bool logits, const apr_kept *kept,
                            apr_error *err)
{
    const running r = {s, b, &s->places[0], fusion};
    size_t i;

    APR_TRY(begin_steps(&r, kept, &i, err));
    for (; i < fusion->n_steps; i++) {
        apr_fused *const step = &fusion->steps[i];
        const bool is_any = step->op >= 0 || step->n_linears > 0;
        i += step->with_next;
        if (!logits && is_any && makes_logits(s, first_op(s, step))) continue;
        APR_TRY(run_step(&r, step, err));
        APR_TRY(store_kept_of(&r, kept, step, err));
    }
    return APR_OK;
}

/* Runs the steps of a token, or with exact products all operations one by one, those of the logits last. */
static apr_status run_token(apr_session *s, const apr_session_batch *b, const apr_session_place *at, apr_error *err)
{
    if (at->fusion.n_steps > 0 && !s->exact) return run_steps(s, b, &at->fusion, true, NULL, err);
    for (int logits = 0; logits < 2; logits++)
        for (size_t i = 0; i < s->program.n_ops; i++)
            if (makes_logits(s, &s->program.ops[i]) == (logits == 1)) APR_TRY(apr_session_run_op(s, b, &s->program.ops[i], err));
    return APR_OK;
}

/* --- a short prompt, as rows --- */

/* May a short prompt run as rows: without logits and without what only the logits need? */
static bool may_fuse_batch(const apr_session *s, const apr_session_batch *b, const apr_session_place *at, const apr_eval_output *out)
{
    return may_fuse_rows(s, at) && at->logits_norm >= 0 && b->n_tokens <= APR_ROWS_MAX_TOKENS && out->hidden == NULL && out->kept == NULL;
}

static apr_status run_fused_batch(apr_session *s, const apr_session_batch *b, const apr_session_place *at, apr_error *err)
{
    APR_TRY(run_steps(s, b, &at->fusion, false, NULL, err));
    return apr_session_run_op(s, b, &s->program.ops[at->logits_norm], err);
}

/* --- several linear layers at once, on the host --- */

static bool reads_same(const apr_session *s, const apr_op *a, const apr_op *b)
{
    const apr_value *const out = &s->program.values[b->out];
    return b->kind == APR_OP_LINEAR && b->in[0] == a->in[0] && b->args.linear.heads.n == 0 && !out->is_logits;
}

/* Counts the consecutive linear layers with the same input, starting at operation i. */
static int count_linears(const apr_session *s, const apr_session_batch *b, size_t i)
{
    const apr_op *const op = &s->program.ops[i];
    const bool is_host = s->n_places == 1 && s->places[0].device == NULL && s->places[0].backend->linears != NULL;
    int n = 0;

    if (!is_host || b->positions != NULL || s->watch != NULL || s->only_products || op->kind != APR_OP_LINEAR) return 0;
    while (n < APR_LINEARS_MAX && i + (size_t)n < s->program.n_ops && reads_same(s, op, op + n)) n++;
    return n;
}

static bool overlap(const float *a, int64_t n_a, const float *b, int64_t n_b)
{
    const uintptr_t at_a = (uintptr_t)a, at_b = (uintptr_t)b;
    return at_a < at_b + (uintptr_t)n_b * sizeof *b && at_b < at_a + (uintptr_t)n_a * sizeof *a;
}

/* Memory is planned for one operation at a time: an output that is never read may share its buffer with the next operation's output. */
static bool are_disjoint(const apr_linear_args *const each[], int n)
{
    for (int i = 0; i < n; i++) {
        const int64_t size = each[i]->n_tokens * each[i]->n_out;
        if (overlap(each[i]->out, size, each[i]->x, each[i]->n_tokens * each[i]->n_in)) return false;
        for (int k = 0; k < i; k++)
            if (overlap(each[i]->out, size, each[k]->out, each[k]->n_tokens * each[k]->n_out)) return false;
    }
    return true;
}

/* Runs operation i and, where the host can run several linear layers at once, those after it; *end: the first operation that was not
 * run. */
static apr_status run_next(apr_session *s, const apr_session_batch *b, size_t i, size_t *end, apr_error *err)
{
    const int n = count_linears(s, b, i);
    const apr_linear_args *each[APR_LINEARS_MAX];
    apr_op_args args[APR_LINEARS_MAX];

    *end = i + 1;
    if (n < 2) return apr_session_run_op(s, b, &s->program.ops[i], err);
    for (int k = 0; k < n; k++) {
        APR_TRY(apr_session_bind_op(s, b, &s->places[0], &s->program.ops[i + (size_t)k], &args[k], err));
        each[k] = &args[k].linear;
    }
    if (!are_disjoint(each, n)) return apr_session_run_op(s, b, &s->program.ops[i], err);
    s->places[0].backend->linears(each, n);
    *end = i + (size_t)n;
    return APR_OK;
}

/* A watcher, or a request for hidden states, needs the single operations. */
static bool uses_prompt_steps(const apr_session *s, const apr_session_batch *b, const apr_eval_output *out)
{
    const apr_session_place *const at = &s->places[0];
    const bool is_seen = s->watch != NULL || s->only_products || out->hidden != NULL;
    return at->prompt.n_steps > 0 && b->n_tokens >= APR_PROMPT_MIN_TOKENS && b->positions == NULL && !s->exact && !at->fp8_products &&
           !is_seen;
}

/* --- a batch --- */

/* Copies a tapped value to the caller's hidden states. */
static apr_status copy_tap(apr_session *s, const apr_session_batch *b, int value, float *hidden, apr_error *err)
{
    const apr_value *const v = &s->program.values[value];
    const size_t row = (size_t)(v->tap * b->n_all + b->first);
    return apr_session_fetch(s, apr_session_place_of_value(s, value), hidden + row * (size_t)v->width, apr_session_value_at(s, value),
                             (size_t)(b->n_tokens * v->width) * sizeof *hidden, err);
}

/* Runs everything except the logits, operation by operation. */
static apr_status run_in_order(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, apr_error *err)
{
    const size_t begin = out->kept != NULL ? out->kept->begin : 0;
    size_t n_done = 0;
    for (size_t i = begin; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        if (makes_logits(s, op)) continue;
        if (i >= n_done) APR_TRY(run_next(s, b, i, &n_done, err));
        APR_TRY(apr_session_store_kept(s, b, out->kept, op->out, err));
        if (out->hidden != NULL && op->out >= 0 && s->program.values[op->out].tap >= 0) APR_TRY(copy_tap(s, b, op->out, out->hidden, err));
    }
    return APR_OK;
}

apr_status apr_session_run_batch(apr_session *s, const apr_session_batch *b, const apr_eval_output *out, bool *logits, apr_error *err)
{
    const apr_session_place *const at = &s->places[0];
    const bool is_token = b->is_recorded && b->positions == NULL, is_rows = b->positions != NULL && may_fuse_rows(s, at);

    *logits = is_token || is_rows;
    if (is_token) return run_token(s, b, at, err);
    if (is_rows) return run_steps(s, b, &at->fusion, true, NULL, err);
    if (may_fuse_batch(s, b, at, out)) return run_fused_batch(s, b, at, err);
    APR_TRY(apr_session_load_kept(s, b, out->kept, err));
    return uses_prompt_steps(s, b, out) ? run_steps(s, b, &at->prompt, false, out->kept, err) : run_in_order(s, b, out, err);
}
