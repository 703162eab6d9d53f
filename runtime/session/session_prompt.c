/* session_prompt.c - prompts on one device in fewer steps than operations: GEMMs, fused with the operations around them. */
#include "runtime/session/session_internal.h"

#include <stdlib.h>

/* The output of the query's, key's or value's product, before head norm and rope. */
static int source_of(const apr_session *s, const apr_prompt_step *step, int which) { return s->program.ops[step->linears[which]].out; }

/* Memory is planned for one operation at a time. The fused Q/K norm, rope and KV write reads the products' outputs while it writes the
 * query. So the query may share memory only with its own product's output, at the same address. */
static bool qkv_epilogues_can_run(const apr_session *s, const apr_session_place *at)
{
    for (size_t i = 0; i < at->prompt.n; i++) {
        const apr_prompt_step *const step = &at->prompt.steps[i];
        if (step->ending != APR_PROMPT_QKV) continue;
        const int query = s->program.ops[step->ropes[0]].out, from = source_of(s, step, 0);
        const bool in_place = at->plan.value_offsets[query] == at->plan.value_offsets[from];
        if (!in_place && apr_session_values_overlap(s, at, query, from)) return false;
        for (int k = 1; k < 3; k++)
            if (apr_session_values_overlap(s, at, query, source_of(s, step, k))) return false;
        for (int k = 0; k < 2; k++)
            if (apr_session_values_overlap(s, at, query, s->program.ops[step->ropes[k]].in[1])) return false; /* angles */
    }
    return true;
}

apr_status apr_session_find_prompt_steps(apr_session *s, apr_session_place *at, apr_error *err)
{
    const size_t n = s->program.n_weights;

    if (s->n_places > 1 || s->options.no_fusion || s->options.no_direct) return APR_OK;
    bool *const has = calloc(n + 1, sizeof *has);
    if (has == NULL) return apr_no_memory(err, "the steps of a prompt");
    for (size_t i = 0; i < n; i++) has[i] = at->plan.vector_offsets[i] >= 0;
    apr_status status = apr_prompt_find_steps(&at->prompt, &s->program, &(apr_prompt_support){has, true}, err);
    if (status == APR_OK && !qkv_epilogues_can_run(s, at)) {
        apr_prompt_close_steps(&at->prompt);
        status = apr_prompt_find_steps(&at->prompt, &s->program, &(apr_prompt_support){has, false}, err);
    }
    free(has);
    return status;
}

/* A watcher, or a request for hidden states, needs the single operations. */
bool apr_session_uses_prompt_steps(const apr_session *s, const apr_eval_output *out)
{
    const apr_session_place *const at = &s->places[0];
    const bool is_seen = s->watch != NULL || s->only_products || out->hidden != NULL;
    return at->prompt.n > 0 && s->n_tokens >= APR_PROMPT_MIN_TOKENS && !s->is_step && !s->exact && !at->fp8_products && !is_seen;
}

/* --- arguments of a step --- */

typedef struct binder {
    apr_session *s;
    const apr_session_place *at;
    apr_prompt_args *to;
} binder;

static apr_status bind(const binder *b, int op, apr_op_args *args, apr_error *err)
{
    return apr_session_bind_op(b->s, b->at, &b->s->program.ops[op], args, err);
}

/* If the step before is a LEAVE, its output is the addend, whichever operand of the sum it is. */
static apr_status bind_inputs(const binder *b, const apr_prompt_step *step, apr_error *err)
{
    apr_op_args args;

    b->to->is_left = step->is_left;
    if (step->norm >= 0) {
        APR_TRY(bind(b, step->norm, &args, err));
        b->to->has_norm = true;
        b->to->norm = args.norm;
    }
    if (step->add < 0) return APR_OK;
    APR_TRY(bind(b, step->add, &args, err));
    const int left = step->addend_is_unscaled ? b->s->program.ops[step[-1].linears[0]].out : -1;
    const bool is_first = left == b->s->program.ops[step->add].in[0];
    b->to->has_sum = true;
    b->to->addend_is_unscaled = step->addend_is_unscaled;
    b->to->residual = is_first ? args.add.b : args.add.a;
    b->to->addend = is_first ? args.add.a : args.add.b;
    b->to->sum = args.add.out;
    return APR_OK;
}

static apr_status bind_qkv_epilogue(const binder *b, const apr_prompt_step *step, apr_error *err)
{
    apr_norm_args *const norms[2] = {&b->to->turn.q_norm, &b->to->turn.k_norm};
    apr_rope_args *const ropes[2] = {&b->to->turn.q, &b->to->turn.k};
    apr_op_args args;

    for (int k = 0; k < 2; k++) {
        APR_TRY(bind(b, step->ropes[k], &args, err));
        *ropes[k] = args.rope;
        if (step->head_norms[k] < 0) continue;
        APR_TRY(bind(b, step->head_norms[k], &args, err));
        *norms[k] = args.norm;
    }
    APR_TRY(bind(b, step->store, &args, err));
    b->to->turn.store = args.kv_store;
    return APR_OK;
}

static apr_status bind_step(const binder *b, apr_prompt_step *step, apr_error *err)
{
    apr_op_args args;

    *b->to = (apr_prompt_args){.n_parts = step->n_linears, .ending = step->ending};
    APR_TRY(bind_inputs(b, step, err));
    for (int k = 0; k < step->n_linears; k++) {
        APR_TRY(bind(b, step->linears[k], &args, err));
        b->to->parts[k] = args.linear;
    }
    if (step->glu >= 0) {
        APR_TRY(bind(b, step->glu, &args, err));
        b->to->unit = args.glu;
        b->to->row_sums = step->row_sums;
    }
    return step->store >= 0 ? bind_qkv_epilogue(b, step, err) : APR_OK;
}

/* The step that begins with operation i, or NULL. */
static apr_prompt_step *step_at(const apr_prompt_steps *steps, size_t i)
{
    size_t low = 0, high = steps->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (steps->steps[middle].first < i) low = middle + 1;
        else high = middle;
    }
    return low < steps->n && steps->steps[low].first == i ? &steps->steps[low] : NULL;
}

apr_status apr_session_run_prompt_step(apr_session *s, size_t i, size_t *end, apr_error *err)
{
    const apr_session_place *const at = &s->places[0];
    apr_prompt_step *const step = step_at(&at->prompt, i);
    apr_prompt_args args;

    if (step == NULL) return apr_session_run_next(s, i, end, err);
    APR_TRY(bind_step(&(binder){s, at, &args}, step, err));
    *end = step->end;
    return s->options.cuda->prompt(at->device, &args, err);
}
