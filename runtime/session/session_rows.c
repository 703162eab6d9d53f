/* session_rows.c - the rows of a step, one sequence each, in fewer steps than operations: small GEMMs fused with what follows them
 * (kernels/cuda/rows_args.h).
 *
 * A session runs either all its steps this way or none, except steps that are watched or exact. Fused products add in another order than
 * single ones, and a row's numbers must not depend on the number of rows.
 *
 * Inputs of the products are in slots of the workspace, used round robin. They stay there until they have been read for the last time;
 * no operation in between may use the workspace. */
#include "kernels/cuda/small_gemm_workspace.h"
#include "runtime/session/session_internal.h"

#include <stdlib.h>

static bool is_dense(const apr_op *op) { return op->kind == APR_OP_LINEAR && op->args.linear.heads.n == 0; }

static int64_t widest_input(const apr_session *s)
{
    int64_t most = 0;
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        if (is_dense(op) && s->program.values[op->in[0]].width > most) most = s->program.values[op->in[0]].width;
    }
    return most;
}

/* Non-zero if the device has a small GEMM for this linear layer: one number for each type and layout. */
static int kind_of(const apr_session *s, const apr_session_place *at, const apr_op *op)
{
    if (!is_dense(op)) return 0;
    const apr_tensor *const weight = at->multiplied[op->weight[0]];
    const int64_t n_in = s->program.values[op->in[0]].width, n_out = s->program.values[op->out].width;
    const bool takes = s->options.cuda->has_rows(at->device, weight, n_out, n_in, at->rows_widest, &at->work);
    return takes ? 2 * (int)weight->dtype + weight->tiled + 1 : 0;
}

/* All products of a session share one type and layout of inputs. BF16 matrices need BF16 inputs, all others FP16. WGMMA kernels need
 * another layout; they are used only if all matrices have types that they support. */
static bool share_input_type(const apr_session *s, apr_session_place *at, const int *kinds)
{
    bool bf16 = false, others = false, wgmma = true;
    for (size_t i = 0; i < s->program.n_ops; i++) {
        if (kinds[i] == 0) continue;
        const apr_dtype dtype = at->multiplied[s->program.ops[i].weight[0]]->dtype;
        const bool is_bf16 = dtype == APR_BF16;
        bf16 |= is_bf16, others |= !is_bf16, wgmma &= apr_small_gemm_has_wgmma(dtype);
    }
    at->rows_bf16 = bf16, at->rows_wgmma = wgmma;
    return bf16 != others;
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
    return step->kind == APR_FUSED_PRODUCTS || step->kind == APR_FUSED_INPUTS || step->kind == APR_FUSED_QKV_EPILOGUE;
}

/* Does every input stay in its slot until it has been read for the last time? */
static bool slots_suffice(const apr_session *s, const apr_fusion *fusion)
{
    for (size_t i = 0; i < fusion->n_planes; i++) {
        const apr_fused_activations *const p = &fusion->planes[i];
        if (i + APR_ROWS_SLOTS < fusion->n_planes && p->last_step >= fusion->planes[i + APR_ROWS_SLOTS].first_step) return false;
        for (int k = p->first_step + 1; k < p->last_step; k++)
            if (!may_stand_between(s, &fusion->steps[k])) return false;
    }
    return true;
}

static bool makes_logits(const apr_session *s, const apr_op *op) { return op->out >= 0 && s->program.values[op->out].is_logits; }

/* The norm whose output, read only by the logits' product, is stored only as a product's input; -1: none. */
static int norm_of_logits(const apr_session *s, const apr_session_place *at)
{
    for (size_t i = 0; i < at->rows.n_steps; i++) {
        const apr_fused *const step = &at->rows.steps[i];
        if (step->kind != APR_FUSED_PRODUCTS || !makes_logits(s, &s->program.ops[step->linears[0]])) continue;
        for (size_t k = 0; k < i; k++)
            if (at->rows.steps[k].planes == step->inputs) return at->rows.steps[k].norm;
    }
    return -1;
}

apr_status apr_session_fuse_rows(apr_session *s, apr_session_place *at, apr_error *err)
{
    const size_t n_ops = s->program.n_ops;
    bool any = false;

    if (s->n_places > 1 || s->options.no_fusion || s->options.no_direct) return APR_OK;
    int *const kinds = calloc(n_ops + 1, sizeof *kinds);
    bool *const qkv_epilogues = calloc(n_ops + 1, sizeof *qkv_epilogues);
    apr_status status = kinds != NULL && qkv_epilogues != NULL ? APR_OK : apr_no_memory(err, "the steps of several sequences");
    at->rows_widest = widest_input(s);
    for (size_t i = 0; i < n_ops && status == APR_OK; i++) {
        const apr_op *const op = &s->program.ops[i];
        any |= (kinds[i] = kind_of(s, at, op)) != 0;
        qkv_epilogues[i] = op->kind == APR_OP_KV_STORE && apr_has_qkv_epilogue(&op->args.kv_store);
    }
    if (status == APR_OK && any && share_input_type(s, at, kinds)) {
        status = apr_fuse(&at->rows, &s->program, &(apr_fusible){kinds, qkv_epilogues, NULL}, err);
        if (status != APR_OK || !slots_suffice(s, &at->rows) || !apr_session_qkv_epilogues_can_run(s, at, &at->rows)) apr_fusion_close(&at->rows);
        at->logits_norm = norm_of_logits(s, at);
    }
    free(kinds);
    free(qkv_epilogues);
    return status == APR_OK && at->rows.n_steps > 0 ? s->options.cuda->expect_decode_gemv(at->device, true, err) : status;
}

bool apr_session_may_fuse_rows(const apr_session *s, const apr_session_place *at)
{
    return at->rows.n_steps > 0 && !s->exact && !s->only_products && s->watch == NULL;
}

/* --- running --- */

static apr_rows_workspace workspace_of(const apr_session_place *at)
{
    return (apr_rows_workspace){at->work, at->rows_widest, at->rows_bf16, at->rows_wgmma};
}

static apr_rows_output next_input_of(const apr_session *s, const apr_session_place *at, const apr_fused *step)
{
    apr_rows_output next = {.slot = step->planes >= 0 ? step->planes % APR_ROWS_SLOTS : -1};
    if (step->planes < 0 || step->norm < 0) return next;
    const apr_op *const norm = &s->program.ops[step->norm];
    next.norm = true;
    next.eps = norm->args.norm.eps;
    next.gain = apr_session_vector_at(at, norm->weight[0]);
    next.gain_offset = norm->args.norm.offset;
    return next;
}

static apr_status run_inputs(const apr_session *s, const apr_session_place *at, const apr_fused *step, int value, apr_error *err)
{
    apr_rows_inputs args = {.room = workspace_of(at),
                            .n_tokens = s->n_tokens,
                            .width = s->program.values[value].width,
                            .x = apr_session_value_at(s, value),
                            .left = next_input_of(s, at, step)};
    if (step->kind == APR_FUSED_INPUTS && step->norm >= 0 && step->keeps)
        args.out = apr_session_value_at(s, s->program.ops[step->norm].out);
    return s->options.cuda->rows_inputs(at->device, &args, err);
}

/* The Q/K norm, rope and KV write right after a step whose products are exactly its query, key and value; NULL: none. */
static const apr_fused *qkv_epilogue_after(const apr_session *s, const apr_session_place *at, const apr_fused *step)
{
    const apr_op *const ops = s->program.ops;
    const apr_fused *const next = step + 1;
    const bool is_three = step->kind == APR_FUSED_PRODUCTS && step->n_linears == 3 && step->planes < 0;
    if (!is_three || next == at->rows.steps + at->rows.n_steps || next->store < 0) return NULL;
    const int read[3] = {apr_session_source_of_rope(s, next, 0), apr_session_source_of_rope(s, next, 1), ops[next->store].in[1]};
    for (int k = 0; k < 3; k++)
        if (ops[step->linears[k]].out != read[k]) return NULL;
    return next;
}

static apr_status run_products(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    const apr_fused *const epilogue = qkv_epilogue_after(s, at, step);
    apr_qkv_epilogue_args qkv;
    const apr_op *const ops = s->program.ops;
    apr_rows_args args = {.room = workspace_of(at),
                          .ending = step->glu >= 0   ? APR_EPILOGUE_GLU
                                    : step->add >= 0 ? APR_EPILOGUE_ADD
                                                     : APR_EPILOGUE_STORE,
                          .n_tokens = s->n_tokens,
                          .n_in = s->program.values[ops[step->linears[0]].in[0]].width,
                          .slot = step->inputs % APR_ROWS_SLOTS,
                          .n_parts = step->n_linears,
                          .left = next_input_of(s, at, step)};

    for (int k = 0; k < step->n_linears; k++) {
        const apr_op *const op = &ops[step->linears[k]];
        args.parts[k] =
            (apr_decode_gemv_part){at->multiplied[op->weight[0]], apr_session_vector_at(at, op->weight[1]), apr_session_value_at(s, op->out)};
    }
    if (step->glu >= 0) args.glu = ops[step->glu].args.glu.shape;
    if (step->add >= 0) args.residual = apr_session_value_at(s, apr_session_residual_of(s, step));
    if (args.ending != APR_EPILOGUE_STORE && (step->keeps || args.left.norm))
        args.out = apr_session_value_at(s, apr_session_result_of(s, step));
    if (epilogue != NULL) {
        APR_TRY(apr_session_bind_qkv_epilogue(s, at, epilogue, &qkv, err));
        args.turn = &qkv;
    }
    return s->options.cuda->rows(at->device, &args, err);
}

static apr_status run_qkv_epilogue(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    apr_qkv_epilogue_args qkv;
    if (step > at->rows.steps && qkv_epilogue_after(s, at, step - 1) == step) return APR_OK; /* done with the products */
    APR_TRY(apr_session_bind_qkv_epilogue(s, at, step, &qkv, err));
    return s->options.cuda->turn(at->device, &qkv, err);
}

static apr_status run_attend(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    if (step->store >= 0) APR_TRY(run_qkv_epilogue(s, at, step, err));
    APR_TRY(apr_session_run_op(s, &s->program.ops[step->op], err));
    return run_inputs(s, at, step, s->program.ops[step->op].out, err);
}

static apr_status run_step(apr_session *s, const apr_session_place *at, const apr_fused *step, apr_error *err)
{
    switch (step->kind) {
    case APR_FUSED_OPERATION: return apr_session_run_op(s, &s->program.ops[step->op], err);
    case APR_FUSED_INPUTS: return run_inputs(s, at, step, step->value, err);
    case APR_FUSED_PRODUCTS: return run_products(s, at, step, err);
    case APR_FUSED_QKV_EPILOGUE: return run_qkv_epilogue(s, at, step, err);
    case APR_FUSED_ATTEND: return run_attend(s, at, step, err);
    case APR_FUSED_EXPERTS: break; /* none were asked for */
    }
    return APR_OK;
}

apr_status apr_session_run_fused_rows(apr_session *s, const apr_session_place *at, apr_error *err)
{
    s->first_row = 0;
    s->n_rows = s->n_tokens;
    for (size_t i = 0; i < at->rows.n_steps; i++) APR_TRY(run_step(s, at, &at->rows.steps[i], err));
    return APR_OK;
}

int64_t apr_session_rows_at_once(const apr_session *s, int64_t n_rows)
{
    const apr_session_place *const at = &s->places[0];
    const int64_t most = at->plan.n_logits < APR_ROWS_MAX_TOKENS ? at->plan.n_logits : (int64_t)APR_ROWS_MAX_TOKENS, n = (n_rows + most - 1) / most;
    return apr_session_may_fuse_rows(s, at) ? (n_rows + n - 1) / n : n_rows;
}

/* --- a prompt --- */

bool apr_session_may_fuse_batch(const apr_session *s, const apr_session_place *at, const apr_eval_output *out)
{
    return apr_session_may_fuse_rows(s, at) && at->logits_norm >= 0 && s->n_tokens <= APR_ROWS_MAX_TOKENS && out->hidden == NULL;
}

apr_status apr_session_run_fused_batch(apr_session *s, const apr_session_place *at, apr_error *err)
{
    for (size_t i = 0; i < at->rows.n_steps; i++) {
        const apr_fused *const step = &at->rows.steps[i];
        const int first = step->op >= 0 ? step->op : step->n_linears > 0 ? step->linears[0] : -1;
        if (first >= 0 && makes_logits(s, &s->program.ops[first])) continue;
        APR_TRY(run_step(s, at, step, err));
    }
    return apr_session_run_op(s, &s->program.ops[at->logits_norm], err);
}
