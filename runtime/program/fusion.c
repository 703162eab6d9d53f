/* fusion.c - fuses the operations of a program in one pass: those of a token or of rows by which values products read, those of a prompt as
 * runs of adjacent operations. */
#include "runtime/program/fusion.h"

#include <stdlib.h>
#include <string.h>

typedef struct fuser {
    const apr_program *program;
    const apr_fusible *can;
    apr_fusion *out;
    int *producer;       /* [n_values] the operation that computes it; -1 */
    int *n_readers;      /* [n_values] */
    bool *absorbed;      /* [n_ops] norms that no step computes separately */
    bool *done;          /* [n_ops] */
    int *epilogue_of;    /* [n_ops] the kv store that it is fused with; -1 */
    int *activations_of; /* [n_values] its activations; -1 */
    int *divided;        /* [n_values] the norm whose division these activations still need; -1 */
} fuser;

bool apr_values_overlap(const apr_program *program, const int64_t *offsets, int a, int b)
{
    const int64_t x = offsets[a], y = offsets[b];
    return x < y + program->values[b].width && y < x + program->values[a].width;
}

static bool reads(const apr_op *op, int value)
{
    for (int i = 0; i < APR_OP_MAX_IN; i++)
        if (op->in[i] == value) return true;
    return false;
}

static bool share_memory(const fuser *f, int a, int b)
{
    return f->can->value_offsets != NULL && apr_values_overlap(f->program, f->can->value_offsets, a, b);
}

/* What the device takes of the operation, if it has that kind; 0. */
static int takes(const fuser *f, size_t i, apr_op_kind kind)
{
    return i < f->program->n_ops && f->program->ops[i].kind == kind ? f->can->takes[i] : 0;
}

static int linear_type(const fuser *f, size_t i) { return takes(f, i, APR_OP_LINEAR); }

/* Does the operation multiply that value from activations? Experts read their routes as float32. */
static bool multiplies(const fuser *f, size_t i, int value)
{
    return (linear_type(f, i) != 0 || takes(f, i, APR_OP_EXPERTS) != 0) && f->program->ops[i].in[0] == value;
}

/* Is the value read only by products that multiply activations? */
static bool only_products_read(const fuser *f, int value)
{
    bool any = false;
    for (size_t i = 0; i < f->program->n_ops; i++) {
        if (!reads(&f->program->ops[i], value)) continue;
        if (!multiplies(f, i, value)) return false;
        any = true;
    }
    return any;
}

/* A bias may be absent only where it is known what the device has. */
static bool has_bias(const fuser *f, const apr_op *op)
{
    return op->weight[1] >= 0 && (f->can->vector_offsets == NULL || f->can->vector_offsets[op->weight[1]] >= 0);
}

static bool is_norm_of_rows(const fuser *f, const apr_op *op)
{
    if (op->kind != APR_OP_NORM || op->args.norm.kind != APR_NORM_RMS || has_bias(f, op)) return false;
    const int64_t width = f->program->values[op->out].width;
    return op->args.norm.chunk == width && op->args.norm.n_weight == width;
}

/* A norm of whole rows whose division can be left to the product. */
static bool is_absorbed(const fuser *f, const apr_op *op) { return is_norm_of_rows(f, op) && only_products_read(f, op->out); }

/* A norm of whole rows that is read by products and also by other operations. */
static bool is_shared_norm(const fuser *f, const apr_op *op)
{
    bool any = false;
    if (!is_norm_of_rows(f, op)) return false;
    for (size_t i = 0; i < f->program->n_ops; i++) any |= multiplies(f, i, op->out);
    return any && f->program->values[op->out].width % 16 == 0;
}

static apr_status allocate(fuser *f, apr_error *err)
{
    const size_t n_ops = f->program->n_ops, n_values = f->program->n_values;

    f->producer = malloc((n_values + 1) * sizeof *f->producer);
    f->n_readers = calloc(n_values + 1, sizeof *f->n_readers);
    f->activations_of = malloc((n_values + 1) * sizeof *f->activations_of);
    f->divided = malloc((n_values + 1) * sizeof *f->divided);
    f->absorbed = calloc(n_ops + 1, sizeof *f->absorbed);
    f->done = calloc(n_ops + 1, sizeof *f->done);
    f->epilogue_of = malloc((n_ops + 1) * sizeof *f->epilogue_of);
    f->out->steps = calloc(2 * n_ops + 1, sizeof *f->out->steps); /* at most inputs and products for each operation */
    f->out->activations = calloc(2 * n_ops + 1, sizeof *f->out->activations);
    const bool all = f->producer != NULL && f->n_readers != NULL && f->activations_of != NULL && f->divided != NULL &&
                     f->absorbed != NULL && f->done != NULL && f->epilogue_of != NULL && f->out->steps != NULL &&
                     f->out->activations != NULL;
    return all ? APR_OK : apr_no_memory(err, "fused steps");
}

static void release(fuser *f)
{
    free(f->producer);
    free(f->n_readers);
    free(f->activations_of);
    free(f->divided);
    free(f->absorbed);
    free(f->done);
    free(f->epilogue_of);
}

static void index_program(fuser *f)
{
    for (size_t v = 0; v < f->program->n_values; v++) f->producer[v] = f->activations_of[v] = f->divided[v] = -1;
    for (size_t i = 0; i < f->program->n_ops; i++) {
        const apr_op *const op = &f->program->ops[i];
        if (op->out >= 0) f->producer[op->out] = (int)i;
        for (int k = 0; k < APR_OP_MAX_IN; k++)
            if (op->in[k] >= 0) f->n_readers[op->in[k]]++;
    }
    for (size_t i = 0; i < f->program->n_ops; i++) f->absorbed[i] = is_absorbed(f, &f->program->ops[i]);
}

static apr_fused *add_step(fuser *f, apr_fused_kind kind)
{
    apr_fused *const step = &f->out->steps[f->out->n_steps++];
    *step = (apr_fused){.kind = kind,
                        .op = -1,
                        .store = -1,
                        .latent_store = -1,
                        .value = -1,
                        .inputs = -1,
                        .divided = -1,
                        .linears = {-1, -1, -1},
                        .glu = -1,
                        .add = -1,
                        .activations = -1,
                        .norm = -1,
                        .normed = -1,
                        .before = -1,
                        .head_norms = {-1, -1},
                        .ropes = {-1, -1}};
    return step;
}

/* Adds activations of a value to the newest step. norm: the norm whose weights they include, or -1. */
static int write_activations(fuser *f, int value, int norm, bool lack_division)
{
    const int index = (int)f->out->n_activations++, step = (int)f->out->n_steps - 1;
    f->out->activations[index] = (apr_fused_activations){f->program->values[value].width, step, step};
    f->out->steps[step].activations = index;
    f->out->steps[step].norm = norm;
    f->activations_of[value] = index;
    f->divided[value] = lack_division ? norm : -1;
    return index;
}

/* The newest step, if it has that kind; NULL. */
static apr_fused *last_step(const fuser *f, apr_fused_kind kind)
{
    apr_fused *const last = f->out->n_steps > 0 ? &f->out->steps[f->out->n_steps - 1] : NULL;
    return last != NULL && last->kind == kind ? last : NULL;
}

/* Rows: makes one step of experts and their sum with a residual, if the newest steps are both and the sum is `value`. NULL: they are not.
 * The sum is written while routes are still read. */
static apr_fused *experts_and_sum(fuser *f, int value)
{
    const apr_op *const ops = f->program->ops;
    const apr_fused *const sum = last_step(f, APR_FUSED_OPERATION);
    apr_fused *const step = f->out->n_steps > 1 ? &f->out->steps[f->out->n_steps - 2] : NULL;
    if (f->can->batch != APR_FUSED_OF_ROWS || sum == NULL || step == NULL || step->kind != APR_FUSED_OPERATION) return NULL;
    const apr_op *const experts = &ops[step->op], *const add = &ops[sum->op];
    if (experts->kind != APR_OP_EXPERTS || add->kind != APR_OP_ADD || add->out != value) return NULL;
    if (!reads(add, experts->out) || f->n_readers[experts->out] != 1 || share_memory(f, add->out, experts->in[1])) return NULL;
    step->kind = APR_FUSED_EXPERTS;
    step->add = sum->op;
    f->out->n_steps--;
    return step;
}

/* Adds a step that writes inputs of products, of `value` or of its norm (-1: none); or lets experts write them. */
static apr_fused *add_inputs(fuser *f, int value, int norm)
{
    apr_fused *step = norm >= 0 ? experts_and_sum(f, value) : NULL;
    if (step == NULL) step = add_step(f, APR_FUSED_INPUTS);
    step->value = value;
    return step;
}

/* The activations of a product's input. Adds a step that writes them if no earlier step does. */
static int activations_for(fuser *f, int value)
{
    if (f->activations_of[value] >= 0) return f->activations_of[value];
    const int producer = f->producer[value], norm = producer >= 0 && f->absorbed[producer] ? producer : -1;
    add_inputs(f, norm >= 0 ? f->program->ops[norm].in[0] : value, norm);
    return write_activations(f, value, norm, false);
}

/* Adds activations for the next products to the step that computes `value`: activations of it, or of the first absorbed norm of it. */
static void write_for_next(fuser *f, int value)
{
    for (size_t i = 0; i < f->program->n_ops; i++) {
        const apr_op *const op = &f->program->ops[i];
        if (!reads(op, value)) continue;
        if (multiplies(f, i, value)) {
            write_activations(f, value, -1, false);
            return;
        }
        if (f->absorbed[i]) {
            write_activations(f, op->out, (int)i, true);
            return;
        }
    }
}

/* Is the value also needed as float32? */
static bool is_read_as_f32(const fuser *f, int value)
{
    if (f->program->values[value].is_logits || f->n_readers[value] == 0) return true;
    for (size_t i = 0; i < f->program->n_ops; i++) {
        const apr_op *const op = &f->program->ops[i];
        if (!reads(op, value)) continue;
        const bool by_activations =
            multiplies(f, i, value) ? f->activations_of[value] >= 0 : f->absorbed[i] && f->activations_of[op->out] >= 0;
        if (!by_activations) return true;
    }
    return false;
}

/* The only operation that reads a value, if it has that kind; -1. */
static int only_reader(const fuser *f, int value, apr_op_kind kind)
{
    if (f->n_readers[value] != 1 || f->program->values[value].is_logits) return -1;
    for (size_t i = 0; i < f->program->n_ops; i++)
        if (reads(&f->program->ops[i], value)) return f->program->ops[i].kind == kind ? (int)i : -1;
    return -1;
}

static int64_t width_of(const fuser *f, int op) { return f->program->values[f->program->ops[op].out].width; }

/* Can linear b be fused with a? Both need the same inputs and type; neither may compute logits. */
static bool can_fuse(const fuser *f, int a, int b)
{
    const apr_op *const x = &f->program->ops[a], *const y = &f->program->ops[b];
    const bool both_logits = f->program->values[x->out].is_logits || f->program->values[y->out].is_logits;
    return linear_type(f, (size_t)b) == linear_type(f, (size_t)a) && !f->done[b] && x->in[0] == y->in[0] && !both_logits;
}

/* The gated unit of two adjacent linears, gate first; -1. */
static int find_glu(const fuser *f, int linear, int linears[2])
{
    const int glu = only_reader(f, f->program->ops[linear].out, APR_OP_GLU);
    if (glu < 0 || f->program->ops[glu].in[1] < 0 || f->done[glu]) return -1;
    linears[0] = f->producer[f->program->ops[glu].in[0]];
    linears[1] = f->producer[f->program->ops[glu].in[1]];
    if (linears[0] < 0 || linears[1] < 0 || linears[0] == linears[1]) return -1;
    const int other = linears[0] == linear ? linears[1] : linears[0];
    if (other != linear + 1 || linear_type(f, (size_t)other) == 0 || !can_fuse(f, linear, other) ||
        width_of(f, linear) != width_of(f, other))
        return -1;
    return only_reader(f, f->program->ops[other].out, APR_OP_GLU) == glu ? glu : -1;
}

/* The sum with a value that is computed earlier; -1. */
static int residual_sum(const fuser *f, int linear)
{
    const int out = f->program->ops[linear].out, add = only_reader(f, out, APR_OP_ADD);
    if (add < 0 || f->done[add]) return -1;
    const apr_op *const op = &f->program->ops[add];
    const int other = op->in[0] == out ? op->in[1] : op->in[0], producer = other >= 0 ? f->producer[other] : -1;
    const bool is_there = other != out && producer >= 0 && producer < linear && !f->absorbed[producer];
    return is_there ? add : -1;
}

static void end_step(fuser *f, size_t step, int value)
{
    write_for_next(f, value);
    f->out->steps[step].writes_f32 = is_read_as_f32(f, value);
}

/* Does a norm that is absorbed read the linear's output? Then the linear is a step of its own, which writes activations. */
static bool ends_in_norm(const fuser *f, int linear)
{
    const int norm = only_reader(f, f->program->ops[linear].out, APR_OP_NORM);
    return norm >= 0 && f->absorbed[norm];
}

static void fuse_products(fuser *f, int linear)
{
    const apr_op *const ops = f->program->ops;
    const int inputs = activations_for(f, ops[linear].in[0]);
    const size_t at = f->out->n_steps;
    apr_fused *const step = add_step(f, APR_FUSED_PRODUCTS);
    int pair[2];

    step->inputs = inputs;
    step->divided = f->divided[ops[linear].in[0]];
    f->out->activations[inputs].last_step = (int)at;
    step->glu = find_glu(f, linear, pair);
    if (step->glu >= 0) {
        step->n_linears = 2;
        memcpy(step->linears, pair, sizeof pair);
        f->done[pair[0]] = f->done[pair[1]] = f->done[step->glu] = true;
        end_step(f, at, ops[step->glu].out);
        return;
    }
    step->linears[step->n_linears++] = linear;
    f->done[linear] = true;
    step->add = residual_sum(f, linear);
    if (step->add >= 0) {
        f->done[step->add] = true;
        end_step(f, at, ops[step->add].out);
        return;
    }
    for (int next = linear + 1; next < (int)f->program->n_ops && step->n_linears < APR_FUSED_PRODUCTS_MAX; next++) {
        if (linear_type(f, (size_t)next) == 0 || !can_fuse(f, linear, next) || ends_in_norm(f, linear) || ends_in_norm(f, next)) break;
        if (find_glu(f, next, pair) >= 0 || residual_sum(f, next) >= 0) break;
        step->linears[step->n_linears++] = next;
        f->done[next] = true;
    }
    if (step->n_linears == 1) end_step(f, at, ops[linear].out);
    else step->writes_f32 = true;
}

/* The chosen experts. Their routes are computed already. */
static void fuse_experts(fuser *f, int experts)
{
    const apr_op *const op = &f->program->ops[experts];
    const int inputs = activations_for(f, op->in[0]);
    const size_t at = f->out->n_steps;
    apr_fused *const step = add_step(f, APR_FUSED_EXPERTS);

    step->op = experts;
    step->inputs = inputs;
    step->divided = f->divided[op->in[0]];
    f->out->activations[inputs].last_step = (int)at;
    f->done[experts] = true;
    step->add = residual_sum(f, experts);
    if (step->add >= 0) f->done[step->add] = true;
    end_step(f, at, step->add >= 0 ? f->program->ops[step->add].out : op->out);
}

/* --- rope and the cache --- */

/* The rope that computes `value` for a single reader, and the head norm that only this rope reads, or -1. */
static int rope_of(const fuser *f, int value, int *norm)
{
    const apr_op *const ops = f->program->ops;
    const int rope = value >= 0 && f->n_readers[value] == 1 ? f->producer[value] : -1;

    *norm = -1;
    if (rope < 0 || ops[rope].kind != APR_OP_ROPE) return -1;
    const int from = ops[rope].in[0], producer = f->producer[from];
    if (producer < 0 || ops[producer].kind != APR_OP_NORM || only_reader(f, from, APR_OP_ROPE) < 0) return rope;
    const apr_norm_args *const a = &ops[producer].args.norm;
    if (a->kind == APR_NORM_RMS && a->chunk == ops[rope].args.rope.head_dim && !has_bias(f, &ops[producer])) *norm = producer;
    return rope;
}

/* The only attention that reads the state of the kv store; -1. */
static int attention_of(const fuser *f, int store)
{
    int found = -1;
    for (size_t i = 0; i < f->program->n_ops; i++) {
        if ((int)i == store || f->program->ops[i].state != f->program->ops[store].state) continue;
        if (found >= 0 || f->program->ops[i].kind != APR_OP_ATTEND) return -1;
        found = (int)i;
    }
    return found;
}

/* Heads of query and key have one size, and as many are rotated as are stored. */
static bool heads_match(const fuser *f, const int ropes[2], int store)
{
    const apr_rope_args *const q = &f->program->ops[ropes[0]].args.rope, *const k = &f->program->ops[ropes[1]].args.rope;
    const apr_kv_store_args *const kv = &f->program->ops[store].args.kv_store;
    return q->head_dim == k->head_dim && k->head_dim == kv->key_dim && k->n_heads == kv->n_kv_heads;
}

/* Finds the ropes and norms of query and key for that kv store. False: they cannot be fused with it. */
static bool find_epilogue(const fuser *f, int store, int ropes[2], int norms[2])
{
    const apr_op *const ops = f->program->ops;
    const int attend = takes(f, (size_t)store, APR_OP_KV_STORE) != 0 && ops[store].in[1] >= 0 ? attention_of(f, store) : -1;

    if (attend < store) return false;
    ropes[0] = rope_of(f, ops[attend].in[0], &norms[0]);
    ropes[1] = rope_of(f, ops[store].in[0], &norms[1]);
    return ropes[0] >= 0 && ropes[1] >= 0 && ropes[0] < store && heads_match(f, ropes, store);
}

/* Finds all operations that are fused with a kv store. They are skipped until fuse_decode reaches the kv store. */
static void find_epilogues(fuser *f)
{
    for (size_t i = 0; i < f->program->n_ops; i++) f->epilogue_of[i] = -1;
    for (size_t i = 0; i < f->program->n_ops; i++) {
        int ropes[2], norms[2];
        if (f->program->ops[i].kind != APR_OP_KV_STORE || !find_epilogue(f, (int)i, ropes, norms)) continue;
        for (int k = 0; k < 2; k++) {
            f->epilogue_of[ropes[k]] = (int)i;
            if (norms[k] >= 0) f->epilogue_of[norms[k]] = (int)i;
        }
        f->epilogue_of[i] = (int)i;
    }
}

/* The newest step, if it is products whose outputs are exactly these three values; NULL. */
static apr_fused *products_of(const fuser *f, const int values[APR_FUSED_PRODUCTS_MAX])
{
    apr_fused *const step = last_step(f, APR_FUSED_PRODUCTS);
    if (step == NULL || step->n_linears != APR_FUSED_PRODUCTS_MAX || step->activations >= 0) return NULL;
    for (int k = 0; k < APR_FUSED_PRODUCTS_MAX; k++)
        if (f->program->ops[step->linears[k]].out != values[k]) return NULL;
    return step;
}

/* A step of its own; of rows, part of the products right before it that compute query, key and value. */
static void add_epilogue(fuser *f, int store)
{
    const apr_op *const ops = f->program->ops;
    int ropes[2], norms[2];
    find_epilogue(f, store, ropes, norms);
    const int qkv[] = {ops[norms[0] >= 0 ? norms[0] : ropes[0]].in[0], ops[norms[1] >= 0 ? norms[1] : ropes[1]].in[0], ops[store].in[1]};
    apr_fused *step = f->can->batch == APR_FUSED_OF_ROWS ? products_of(f, qkv) : NULL;
    if (step == NULL) step = add_step(f, APR_FUSED_QKV_EPILOGUE);
    step->store = store;
    memcpy(step->ropes, ropes, sizeof ropes);
    memcpy(step->head_norms, norms, sizeof norms);
}

/* A sum, as float32 and as activations of the norm that is absorbed by the products after it. False: no such norm reads it. */
static bool add_sum(fuser *f, int add)
{
    const apr_op *const op = &f->program->ops[add];
    if (f->can->batch != APR_FUSED_OF_TOKEN || op->kind != APR_OP_ADD || f->activations_of[op->out] >= 0) return false;
    for (size_t i = (size_t)add + 1; i < f->program->n_ops; i++) {
        const apr_op *const norm = &f->program->ops[i];
        if (!reads(norm, op->out) || !f->absorbed[i]) continue;
        apr_fused *const step = add_step(f, APR_FUSED_INPUTS);
        step->add = add;
        step->value = op->out;
        write_activations(f, norm->out, (int)i, false);
        return true;
    }
    return false;
}

/* A norm that is written as activations and as float32. */
static void add_shared_norm(fuser *f, int norm)
{
    add_inputs(f, f->program->ops[norm].in[0], norm)->normed = norm;
    write_activations(f, f->program->ops[norm].out, norm, false);
}

/* Rows: a norm of whole rows right after the products whose sum it reads becomes part of their step. Its output may share memory with what
 * the sum is computed from only if it does so row by row. False: it does not. */
static bool norm_after_sum(fuser *f, int norm)
{
    const apr_op *const ops = f->program->ops, *const op = &ops[norm];
    apr_fused *const step = f->can->batch == APR_FUSED_OF_ROWS ? last_step(f, APR_FUSED_PRODUCTS) : NULL;
    if (step == NULL || step->add < 0 || step->activations >= 0 || op->in[0] != ops[step->add].out || !is_norm_of_rows(f, op)) return false;
    for (int k = 0; k < 2; k++) {
        const int read = ops[step->add].in[k];
        if (share_memory(f, op->out, read) && f->can->value_offsets[op->out] != f->can->value_offsets[read]) return false;
    }
    if (share_memory(f, op->out, op->in[0])) return false;
    step->normed = norm;
    return true;
}

/* The step for attention. A QKV epilogue directly before it is merged into it. */
static apr_fused *attend_step(fuser *f, const apr_op *op)
{
    apr_fused *const last = last_step(f, APR_FUSED_QKV_EPILOGUE);
    if (last == NULL || f->program->ops[last->store].state != op->state) return add_step(f, APR_FUSED_ATTEND);
    last->kind = APR_FUSED_ATTEND;
    return last;
}

/* An operation that is not fused, or attention that also writes activations for the products after it. */
static void add_operation(fuser *f, int op)
{
    const apr_op *const o = &f->program->ops[op];
    const bool for_products =
        o->kind == APR_OP_ATTEND && o->in[1] < 0 && only_products_read(f, o->out) && f->program->values[o->out].width % 16 == 0;

    if (norm_after_sum(f, op)) return;
    (for_products ? attend_step(f, o) : add_step(f, APR_FUSED_OPERATION))->op = op;
    if (for_products) write_activations(f, o->out, -1, false);
}

/* --- latent attention: runs of adjacent operations --- */

static bool is_run(const fuser *f, size_t first, const apr_op_kind *kinds, size_t n)
{
    if (first + n > f->program->n_ops || takes(f, first, kinds[0]) == 0) return false;
    for (size_t i = 0; i < n; i++)
        if (f->program->ops[first + i].kind != kinds[i]) return false;
    return true;
}

/* Are the values that operations [first, first + n) compute read only once each? */
static bool are_read_once(const fuser *f, const apr_op *first, int n)
{
    for (int i = 0; i < n; i++)
        if (f->n_readers[first[i].out] != 1) return false;
    return true;
}

/* Do both slices together make up each of the heads, the first one first? */
static bool halve_heads(const apr_slice_args *a, const apr_slice_args *b, int64_t n_heads)
{
    return a->start == 0 && b->start == a->n && b->start + b->n == b->head_dim && a->head_dim == b->head_dim && a->n_heads == n_heads &&
           b->n_heads == n_heads;
}

static bool is_latent_query(const fuser *f, size_t i)
{
    static const apr_op_kind kinds[] = {APR_OP_ROPE, APR_OP_SLICE, APR_OP_SLICE, APR_OP_LINEAR, APR_OP_JOIN};
    if (!is_run(f, i, kinds, APR_LATENT_QUERY_OPS)) return false;
    const apr_op *const rope = &f->program->ops[i], *const first = rope + 1, *const rest = rope + 2, *const absorb = rope + 3,
                        *const join = rope + 4;
    const int64_t n_heads = rope->args.rope.n_heads;
    if (first->in[0] != rope->out || rest->in[0] != rope->out || f->n_readers[rope->out] != 2 || !are_read_once(f, first, 3)) return false;
    return absorb->in[0] == first->out && join->in[0] == absorb->out && join->in[1] == rest->out &&
           halve_heads(&first->args.slice, &rest->args.slice, n_heads) && absorb->args.linear.heads.n == n_heads &&
           join->args.join.n_heads == n_heads && rope->args.rope.start >= first->args.slice.n && absorb->weight[1] < 0;
}

static bool is_latent_store(const fuser *f, size_t i)
{
    static const apr_op_kind kinds[] = {APR_OP_SLICE, APR_OP_NORM, APR_OP_SLICE, APR_OP_ROPE, APR_OP_JOIN, APR_OP_KV_STORE};
    if (!is_run(f, i, kinds, APR_LATENT_STORE_OPS)) return false;
    const apr_op *const first = &f->program->ops[i], *const norm = first + 1, *const rest = first + 2, *const rope = first + 3,
                        *const join = first + 4, *const store = first + 5;
    if (norm->in[0] != first->out || rest->in[0] != first->in[0] || f->n_readers[first->in[0]] != 2 || !are_read_once(f, first, 5))
        return false;
    return rope->in[0] == rest->out && join->in[0] == norm->out && join->in[1] == rope->out && store->in[0] == join->out &&
           store->in[1] < 0 && halve_heads(&first->args.slice, &rest->args.slice, 1) && is_norm_of_rows(f, norm) &&
           store->args.kv_store.n_kv_heads == 1;
}

/* Adds a step for the run that begins with operation i, or a store to the query right before it. Returns its number of operations; 0:
 * none. */
static size_t add_latent(fuser *f, size_t i)
{
    const bool is_query = is_latent_query(f, i);
    if (!is_query && !is_latent_store(f, i)) return 0;
    const size_t n = is_query ? APR_LATENT_QUERY_OPS : APR_LATENT_STORE_OPS;
    apr_fused *const query = is_query ? NULL : last_step(f, APR_FUSED_LATENT_QUERY);
    if (query != NULL && query->latent_store < 0) query->latent_store = (int)i;
    else add_step(f, is_query ? APR_FUSED_LATENT_QUERY : APR_FUSED_LATENT_STORE)->op = (int)i;
    for (size_t k = i; k < i + n; k++) f->done[k] = true;
    return n;
}

/* The router of experts whose input the products of a shared expert's GLU read also: these go next to the router's, so that both are one
 * call. Their result exists only as activations, which share no memory with values. */
static void fuse_shared(fuser *f, int router)
{
    const apr_op *const ops = f->program->ops, *const op = &ops[router];
    const int route = f->can->batch == APR_FUSED_OF_TOKEN && router + 2 < (int)f->program->n_ops ? router + 1 : -1, experts = route + 1;
    int pair[2];

    if (route < 0 || ops[route].kind != APR_OP_ROUTE || ops[route].in[0] != op->out || takes(f, (size_t)experts, APR_OP_EXPERTS) == 0 ||
        ops[experts].in[0] != op->in[0])
        return;
    for (int i = experts + 1; i < (int)f->program->n_ops && ops[i].layer == op->layer; i++) {
        if (linear_type(f, (size_t)i) == 0 || ops[i].in[0] != op->in[0] || f->done[i]) continue;
        const int glu = find_glu(f, i, pair);
        if (glu >= 0 && only_products_read(f, ops[glu].out)) fuse_products(f, i);
        return;
    }
}

/* A token's adjacent products of the same inputs run in pairs. */
static void pair_products(fuser *f)
{
    for (size_t i = 0; i + 1 < f->out->n_steps; i++) {
        apr_fused *const a = &f->out->steps[i];
        a->with_next = a->kind == APR_FUSED_PRODUCTS && a[1].kind == APR_FUSED_PRODUCTS && a->inputs == a[1].inputs;
        i += a->with_next;
    }
}

static void fuse_decode(fuser *f)
{
    find_epilogues(f);
    for (size_t i = 0; i < f->program->n_ops; i++) {
        if (f->done[i] || f->absorbed[i] || add_latent(f, i) > 0) continue;
        f->done[i] = linear_type(f, i) == 0;
        if (linear_type(f, i) != 0) {
            fuse_products(f, (int)i);
            fuse_shared(f, (int)i);
        } else if (takes(f, i, APR_OP_EXPERTS) != 0) fuse_experts(f, (int)i);
        else if (f->epilogue_of[i] < 0 && is_shared_norm(f, &f->program->ops[i])) add_shared_norm(f, (int)i);
        else if (f->epilogue_of[i] < 0 && !add_sum(f, (int)i)) add_operation(f, (int)i);
        else if (f->epilogue_of[i] == (int)i) add_epilogue(f, (int)i);
    }
    if (f->can->batch == APR_FUSED_OF_TOKEN) pair_products(f);
}

/* --- prompts: runs of adjacent operations --- */

/* Counts adjacent products of one input and type, from operation `first` on. `value`: the required input; < 0: that of the first one. */
static int count_products(const fuser *f, size_t first, int value)
{
    const apr_op *const ops = f->program->ops;
    const int type = linear_type(f, first);
    size_t i = first;
    if (type == 0) return 0;
    while (i < first + APR_FUSED_PRODUCTS_MAX && linear_type(f, i) == type && ops[i].in[0] == (value >= 0 ? value : ops[first].in[0])) i++;
    return (int)(i - first);
}

/* A norm that is read by the products right after it, and by nothing else. */
static bool is_inner_norm(const fuser *f, size_t i)
{
    const apr_op *const op = &f->program->ops[i];
    if (takes(f, i, APR_OP_NORM) == 0 || has_bias(f, op)) return false;
    const int n = count_products(f, i + 1, op->out);
    return n > 0 && n == f->n_readers[op->out];
}

/* A sum right before such a norm. */
static bool is_inner_sum(const fuser *f, size_t i)
{
    const apr_op *const op = &f->program->ops[i];
    return i < f->program->n_ops && op->kind == APR_OP_ADD && is_inner_norm(f, i + 1) && op[1].in[0] == op->out && op->in[0] != op->in[1];
}

/* Is product k of the step read once, by that operation? */
static bool is_read_by(const fuser *f, const apr_fused *step, int k, const apr_op *reader)
{
    const int value = f->program->ops[step->linears[k]].out;
    return reads(reader, value) && f->n_readers[value] == 1;
}

/* gate, up and their GLU, which only the product after it reads. `at`: the first operation after the products. */
static bool ends_in_glu(const fuser *f, size_t at, const apr_fused *step)
{
    if (step->n_linears != 2 || takes(f, at, APR_OP_GLU) == 0 || linear_type(f, at + 1) == 0) return false;
    const apr_op *const ops = f->program->ops, *const glu = &ops[at];
    for (int k = 0; k < 2; k++)
        if (!is_read_by(f, step, k, glu) || has_bias(f, &ops[step->linears[k]])) return false;
    return glu->in[0] == ops[step->linears[0]].out && glu[1].in[0] == glu->out && f->n_readers[glu->out] == 1;
}

/* q, k, v, [norm,] rope, [norm,] rope, kv store. */
static bool ends_in_store(const fuser *f, size_t at, apr_fused *step)
{
    const apr_op *const ops = f->program->ops;
    int *const ropes = step->ropes, *const norms = step->head_norms;
    size_t store = at + 2;

    while (store < at + 4 && takes(f, store, APR_OP_KV_STORE) == 0) store++;
    if (step->n_linears != 3 || takes(f, store, APR_OP_KV_STORE) == 0) return false;
    step->store = (int)store;
    ropes[1] = rope_of(f, ops[store].in[0], &norms[1]);
    const int k = norms[1] >= 0 ? norms[1] : ropes[1];
    if (k <= (int)at) return false;
    ropes[0] = rope_of(f, ops[k - 1].out, &norms[0]);
    const int q = norms[0] >= 0 ? norms[0] : ropes[0];
    return q == (int)at && store == at + 2 + (norms[0] >= 0) + (norms[1] >= 0) && is_read_by(f, step, 0, &ops[q]) &&
           is_read_by(f, step, 1, &ops[k]) && is_read_by(f, step, 2, &ops[store]) && heads_match(f, ropes, step->store);
}

/* A product whose sum with the residual begins the next step. */
static bool ends_before_sum(const fuser *f, size_t at, const apr_fused *step)
{
    const apr_op *const ops = f->program->ops;
    return step->n_linears == 1 && is_inner_sum(f, at) && is_read_by(f, step, 0, &ops[at]) && !has_bias(f, &ops[step->linears[0]]);
}

/* Finds what ends the step after its products, from operation `at` on. Returns its end. */
static size_t end_prompt_step(const fuser *f, size_t at, apr_fused *step)
{
    apr_fused stored = *step;

    if (ends_in_glu(f, at, step)) {
        step->glu = (int)at;
        return at + 1;
    }
    if (ends_in_store(f, at, &stored)) {
        *step = stored;
        return (size_t)stored.store + 1;
    }
    step->writes_f32 = !ends_before_sum(f, at, step);
    return at;
}

/* Finds the step that begins with operation i. Returns its end; i: nothing is fused with the operation. */
static size_t find_prompt_step(const fuser *f, size_t i, apr_fused *step)
{
    const bool has_before = f->out->n_steps > 1 && step[-1].kind == APR_FUSED_PROMPT, follows_glu = has_before && step[-1].glu >= 0;
    size_t at = i;

    if (has_before) step->before = (int)f->out->n_steps - 2;
    if (is_inner_sum(f, at)) step->add = (int)at++;
    if (is_inner_norm(f, at)) step->norm = (int)at++;
    step->n_linears = count_products(f, at, step->norm >= 0 ? f->program->ops[step->norm].out : -1);
    for (int k = 0; k < step->n_linears; k++) step->linears[k] = (int)at++;
    if (step->n_linears == 0) return i;
    at = end_prompt_step(f, at, step);
    return step->writes_f32 && step->norm < 0 && !follows_glu ? i : at;
}

static void fuse_prompt(fuser *f)
{
    for (size_t i = 0; i < f->program->n_ops;) {
        const size_t n_latent = add_latent(f, i);
        i += n_latent;
        if (n_latent > 0) continue;
        const size_t end = find_prompt_step(f, i, add_step(f, APR_FUSED_PROMPT));
        if (end == i) {
            f->out->n_steps--;
            add_step(f, APR_FUSED_OPERATION)->op = (int)i;
        }
        i = end > i ? end : i + 1;
    }
}

apr_status apr_fuse(apr_fusion *fusion, const apr_program *program, const apr_fusible *can, apr_error *err)
{
    fuser f = {.program = program, .can = can, .out = fusion};

    *fusion = (apr_fusion){.batch = can->batch};
    const apr_status status = allocate(&f, err);
    if (status == APR_OK) {
        index_program(&f);
        (can->batch == APR_FUSED_OF_PROMPT ? fuse_prompt : fuse_decode)(&f);
    }
    release(&f);
    return status;
}

void apr_fusion_close(apr_fusion *fusion)
{
    free(fusion->steps);
    free(fusion->activations);
    *fusion = (apr_fusion){0};
}
