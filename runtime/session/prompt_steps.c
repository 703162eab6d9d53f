/* prompt_steps.c - see prompt_steps.h. Walks over a program once, and takes at each operation the longest step that begins there. */
#include "runtime/session/prompt_steps.h"

#include <stdlib.h>

typedef struct finder {
    const apr_program *program;
    const apr_prompt_support *can;
    int *n_readers; /* [n_values] */
    apr_prompt_steps *out;
} finder;

static const apr_op *op_at(const finder *f, size_t i) { return i < f->program->n_ops ? &f->program->ops[i] : NULL; }

static bool is_kind(const finder *f, size_t i, apr_op_kind kind) { return i < f->program->n_ops && f->program->ops[i].kind == kind; }

static int64_t width_of(const finder *f, int value) { return f->program->values[value].width; }

/* Is the value read exactly once, by `reader`? */
static bool is_read_only_by(const finder *f, int value, const apr_op *reader)
{
    bool reads = false;
    for (int k = 0; k < APR_OP_MAX_IN; k++) reads |= reader->in[k] == value;
    return reads && f->n_readers[value] == 1;
}

static bool has_bias(const finder *f, const apr_op *linear) { return linear->weight[1] >= 0 && f->can->has[linear->weight[1]]; }

/* A product of all tokens with one matrix, but not the logits. */
static bool is_product(const finder *f, size_t i)
{
    const apr_op *const op = op_at(f, i);
    return op != NULL && op->kind == APR_OP_LINEAR && op->args.linear.heads.n == 0 && !f->program->values[op->out].is_logits;
}

static bool is_grouped(const finder *f, const apr_op *linear)
{
    return apr_prompt_shares_scale(APR_PROMPT_MIN_TOKENS, width_of(f, linear->in[0]), width_of(f, linear->out), has_bias(f, linear));
}

/* Counts adjacent products of one input that use the same kind of kernel, from operation `first` on. `value`: the required input; < 0:
 * that of the first product. */
static int count_products(const finder *f, size_t first, int value)
{
    int n = 0;
    while (n < APR_PROMPT_PARTS && is_product(f, first + (size_t)n)) {
        const apr_op *const op = op_at(f, first + (size_t)n), *const a = op_at(f, first);
        if (op->in[0] != (value >= 0 ? value : a->in[0]) || is_grouped(f, op) != is_grouped(f, a)) break;
        n++;
    }
    return n;
}

/* A norm of whole rows that is read by the products right after it, and by nothing else. */
static bool is_inner_norm(const finder *f, size_t i)
{
    if (!is_kind(f, i, APR_OP_NORM)) return false;
    const apr_op *const op = op_at(f, i);
    const apr_norm_args *const a = &op->args.norm;
    const bool has_vector = op->weight[1] >= 0 && f->can->has[op->weight[1]];
    if (has_vector || !apr_prompt_has_norm(a->kind, width_of(f, op->out), a->chunk, a->n_weight)) return false;
    const int n = count_products(f, i + 1, op->out);
    return n > 0 && n == f->n_readers[op->out];
}

static bool is_inner_sum(const finder *f, size_t i)
{
    if (!is_kind(f, i, APR_OP_ADD) || !is_inner_norm(f, i + 1)) return false;
    const apr_op *const add = op_at(f, i);
    return op_at(f, i + 1)->in[0] == add->out && add->in[0] != add->in[1];
}

/* --- epilogues: `at` is the first operation after the products --- */

static bool find_unit(const finder *f, size_t at, apr_prompt_step *step)
{
    if (step->n_linears != 2 || !is_kind(f, at, APR_OP_GLU) || !is_product(f, at + 1)) return false;
    const apr_op *const glu = op_at(f, at), *const down = op_at(f, at + 1);
    for (int k = 0; k < 2; k++) {
        const apr_op *const linear = op_at(f, (size_t)step->linears[k]);
        if (glu->in[k] != linear->out || !is_read_only_by(f, linear->out, glu) || has_bias(f, linear)) return false;
    }
    if (!is_read_only_by(f, glu->out, down) || down->in[0] != glu->out || is_grouped(f, down) || !apr_prompt_has_glu(width_of(f, glu->out)))
        return false;
    step->glu = (int)at;
    step->epilogue = APR_PROMPT_GLU;
    step->end = at + 1;
    return true;
}

/* A rope of a product's output, or of the norm of its heads. Advances *at past it. */
static bool find_rope(const finder *f, size_t *at, int which, apr_prompt_step *step)
{
    int value = op_at(f, (size_t)step->linears[which])->out;
    step->head_norms[which] = -1;
    if (is_kind(f, *at, APR_OP_NORM)) {
        const apr_op *const norm = op_at(f, *at);
        if (norm->in[0] != value || !is_read_only_by(f, value, norm)) return false;
        step->head_norms[which] = (int)(*at)++;
        value = norm->out;
    }
    if (!is_kind(f, *at, APR_OP_ROPE) || op_at(f, *at)->in[0] != value || !is_read_only_by(f, value, op_at(f, *at))) return false;
    step->ropes[which] = (int)(*at)++;
    return true;
}

static bool is_head_norm(const finder *f, int norm, int64_t head_dim)
{
    if (norm < 0) return true;
    const apr_op *const op = op_at(f, (size_t)norm);
    const bool has_vector = op->weight[1] >= 0 && f->can->has[op->weight[1]];
    return op->args.norm.kind == APR_NORM_RMS && op->args.norm.chunk == head_dim && !has_vector;
}

/* Query and key heads have one size and are all rotated; keys and values are stored separately. */
static bool can_fuse_qkv(const finder *f, const apr_prompt_step *step)
{
    const apr_op *const store = op_at(f, (size_t)step->store), *const v = op_at(f, (size_t)step->linears[2]);
    const apr_rope_args *const q = &op_at(f, (size_t)step->ropes[0])->args.rope, *const k = &op_at(f, (size_t)step->ropes[1])->args.rope;
    const apr_kv_store_args *const kv = &store->args.kv_store;
    const bool fits = apr_has_qkv_epilogue(kv) && q->head_dim == kv->key_dim && k->head_dim == kv->key_dim && k->n_heads == kv->n_kv_heads;
    const bool is_last = is_read_only_by(f, op_at(f, (size_t)step->ropes[1])->out, store) && is_read_only_by(f, v->out, store);
    return fits && is_last && store->in[0] == op_at(f, (size_t)step->ropes[1])->out && store->in[1] == v->out &&
           is_head_norm(f, step->head_norms[0], q->head_dim) && is_head_norm(f, step->head_norms[1], k->head_dim);
}

static bool find_qkv_epilogue(const finder *f, size_t at, apr_prompt_step *step)
{
    apr_prompt_step fused = *step;

    if (!f->can->turns || step->n_linears != 3) return false;
    if (!find_rope(f, &at, 0, &fused) || !find_rope(f, &at, 1, &fused) || !is_kind(f, at, APR_OP_KV_STORE)) return false;
    fused.store = (int)at;
    if (!can_fuse_qkv(f, &fused)) return false;
    fused.epilogue = APR_PROMPT_QKV;
    fused.end = at + 1;
    *step = fused;
    return true;
}

/* A product that is added to the residual, and normed for the next products. */
static bool find_leave(const finder *f, size_t at, apr_prompt_step *step)
{
    const apr_op *const linear = op_at(f, (size_t)step->linears[0]);
    if (step->n_linears != 1 || has_bias(f, linear) || !is_inner_sum(f, at) || !is_read_only_by(f, linear->out, op_at(f, at))) return false;
    step->epilogue = APR_PROMPT_UNSCALED;
    step->end = at;
    return true;
}

/* Finds the step that begins at operation i; `before`: the previous step or NULL. False: operation i runs by itself. */
static bool find_step(const finder *f, size_t i, const apr_prompt_step *before, apr_prompt_step *step)
{
    const bool follows = before != NULL && before->end == i;
    int value = -1;
    size_t at = i;

    *step = (apr_prompt_step){.first = i, .add = -1, .norm = -1, .glu = -1, .head_norms = {-1, -1}, .ropes = {-1, -1}, .store = -1};
    if (is_inner_sum(f, at)) {
        step->addend_is_unscaled = follows && before->epilogue == APR_PROMPT_UNSCALED;
        step->add = (int)at++;
    }
    if (step->add >= 0 || is_inner_norm(f, at)) {
        step->norm = (int)at;
        value = op_at(f, at++)->out;
    }
    step->input_is_glu = follows && before->epilogue == APR_PROMPT_GLU;
    step->n_linears = count_products(f, at, value);
    for (int k = 0; k < step->n_linears; k++) step->linears[k] = (int)at++;
    if (step->n_linears == 0) return false;
    if (find_unit(f, at, step) || find_qkv_epilogue(f, at, step) || find_leave(f, at, step)) return true;
    step->epilogue = APR_PROMPT_STORE;
    step->end = at;
    return step->norm >= 0 || step->input_is_glu;
}

static void count_readers(finder *f)
{
    for (size_t i = 0; i < f->program->n_ops; i++)
        for (int k = 0; k < APR_OP_MAX_IN; k++)
            if (f->program->ops[i].in[k] >= 0) f->n_readers[f->program->ops[i].in[k]]++;
}

static void walk(finder *f)
{
    apr_prompt_steps *const out = f->out;
    for (size_t i = 0; i < f->program->n_ops;) {
        const bool found = find_step(f, i, out->n > 0 ? &out->steps[out->n - 1] : NULL, &out->steps[out->n]);
        i = found ? out->steps[out->n++].end : i + 1;
    }
}

apr_status apr_prompt_find_steps(apr_prompt_steps *steps, const apr_program *program, const apr_prompt_support *can, apr_error *err)
{
    finder f = {.program = program, .can = can, .out = steps};

    *steps = (apr_prompt_steps){.steps = calloc(program->n_ops + 1, sizeof *steps->steps)};
    f.n_readers = calloc(program->n_values + 1, sizeof *f.n_readers);
    const bool all = steps->steps != NULL && f.n_readers != NULL;
    if (all) {
        count_readers(&f);
        walk(&f);
    }
    free(f.n_readers);
    if (!all) apr_prompt_close_steps(steps);
    return all ? APR_OK : apr_no_memory(err, "the steps of a prompt");
}

void apr_prompt_close_steps(apr_prompt_steps *steps)
{
    free(steps->steps);
    *steps = (apr_prompt_steps){0};
}
