/* train_open.c - opens a backward pass: finds the tensors, binds the operations' shapes, places values and weights, and plans memory. */
#include "runtime/program/admission.h"
#include "runtime/train/train_internal.h"

#include <stdlib.h>

enum { LOGITS_ROWS = 128 }; /* the depth of a product's partial sums on the host: chunks of whole parts are added in the same order */

const apr_program *apr_train_program(const apr_train *t) { return &t->program; }

const apr_tensor *const *apr_train_tensors(const apr_train *t, size_t *n)
{
    *n = t->n_trained;
    return t->trained;
}

const apr_train_line *apr_train_plan(const apr_train *t, size_t *n)
{
    *n = train_is_on_device(t) ? N_LINES : LINE_IDS; /* the last line is a GPU's alone */
    return t->lines;
}

/* ---- opening: tensors ---- */

static apr_status find_tensor(apr_train *t, size_t slot, int64_t i, apr_error *err)
{
    char name[256];
    const apr_weight_slot *const w = &t->program.weights[slot];
    const apr_tensor *const tensor = apr_model_find(t->model, apr_slot_name(w, i, name, sizeof name));

    if (tensor == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' is missing", t->model->path, name);
    if (tensor->data == NULL && apr_tensor_is_stored(tensor))
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' has no data", t->model->path, name);
    t->slots[slot].tensors[i] = tensor;
    t->slots[slot].n += apr_tensor_elems(tensor);
    return APR_OK;
}

static apr_status find_slot(apr_train *t, size_t slot, apr_error *err)
{
    const apr_weight_slot *const w = &t->program.weights[slot];
    char name[256];

    if (w->optional && apr_model_find(t->model, apr_slot_name(w, 0, name, sizeof name)) == NULL) return APR_OK;
    t->slots[slot].tensors = calloc((size_t)w->count, sizeof *t->slots[slot].tensors);
    if (t->slots[slot].tensors == NULL) return apr_no_memory(err, "the table of tensors");
    for (int64_t i = 0; i < w->count; i++) APR_TRY(find_tensor(t, slot, i, err));
    return APR_OK;
}

static bool is_listed(const apr_train *t, const apr_tensor *tensor)
{
    for (size_t i = 0; i < t->n_trained; i++)
        if (t->trained[i] == tensor) return true;
    return false;
}

/* Lists the tensors that operations read. Those of a stack of experts are not looked for one by one. */
static apr_status list_tensors(apr_train *t, apr_error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < t->program.n_weights; i++) most += (size_t)t->program.weights[i].count;
    t->trained = calloc(most + 1, sizeof *t->trained);
    t->stored = calloc(most + 1, sizeof *t->stored);
    if (t->trained == NULL || t->stored == NULL) return apr_no_memory(err, "the table of tensors");
    for (size_t i = 0; i < t->program.n_ops; i++)
        for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
            const int slot = t->program.ops[i].weight[j];
            if (slot < 0 || t->slots[slot].tensors == NULL || is_listed(t, t->slots[slot].tensors[0])) continue;
            for (int64_t k = 0; k < t->program.weights[slot].count; k++) t->trained[t->n_trained++] = t->slots[slot].tensors[k];
        }
    return APR_OK;
}

/* ---- opening: operations ---- */

/* Is there a backward pass where it is to run? Weights that are stored as logarithms need one as well. */
static bool can_run(const apr_train *t, const apr_op *op)
{
    if (!t->backend->has(t, op->kind)) return false;
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++)
        if (op->weight[j] >= 0 && t->program.weights[op->weight[j]].is_log && t->backend->exponentials == NULL) return false;
    return true;
}

static apr_status check_operations(const apr_train *t, apr_error *err)
{
    for (size_t i = 0; i < t->program.n_ops; i++) {
        const apr_op *const op = &t->program.ops[i];
        if (!can_run(t, op))
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: the operation '%s' (layer %d) has no backward pass%s", t->model->path,
                            apr_op_name(op->kind), op->layer, t->backend->where);
        if (op->kind == APR_OP_INDEX && t->options.n_tokens > op->args.index.n_chosen)
            return apr_fail(err, APR_E_USAGE, "%s: a window of %lld tokens is longer than the %lld positions that its index chooses",
                            t->model->path, (long long)t->options.n_tokens, (long long)op->args.index.n_chosen);
    }
    return APR_OK;
}

/* Shapes and parameters of each operation, as its spec binds them; no pointer that it sets is used but those to frequencies. */
static apr_status bind_shapes(apr_train *t, apr_error *err)
{
    const apr_program *const p = &t->program;
    size_t n = p->n_values;
    float nothing = 0.0f;

    n = p->n_weights > n ? p->n_weights : n;
    n = p->n_states > n ? p->n_states : n;
    t->zeros = calloc(n + 1, sizeof *t->zeros);
    const apr_tensor **const none = calloc(p->n_weights + 1, sizeof *none);
    uint8_t *const states = calloc(1, 64);
    if (t->zeros == NULL || none == NULL || states == NULL) {
        free(none);
        free(states);
        return apr_no_memory(err, "the operations of the model");
    }
    apr_op_memory memory = {.program = p,
                            .n_tokens = t->n_rows,
                            .n_rows = t->n_rows,
                            .activations = &nothing,
                            .logits = &nothing,
                            .value_offsets = t->zeros,
                            .vectors = t->freqs,
                            .vector_offsets = t->zeros,
                            .rope_offsets = t->rope_offsets,
                            .tables = none,
                            .matrices = none,
                            .states = states,
                            .state_offsets = (const uint64_t *)t->zeros,
                            .state_cells = t->zeros,
                            .kv_dtype = APR_F32};
    for (size_t i = 0; i < p->n_ops; i++) apr_op_bind(&memory, &p->ops[i], &t->args[i]);
    free(none);
    free(states);
    return APR_OK;
}

static apr_status make_frequencies(apr_train *t, apr_error *err)
{
    int64_t n = 0;

    t->rope_offsets = calloc(t->program.n_ropes + 1, sizeof *t->rope_offsets);
    if (t->rope_offsets == NULL) return apr_no_memory(err, "rotary frequencies");
    for (size_t i = 0; i < t->program.n_ropes; i++) {
        t->rope_offsets[i] = n;
        n += t->program.ropes[i].n_freqs;
    }
    t->n_freqs = n;
    t->freqs = calloc((size_t)n + 1, sizeof *t->freqs);
    if (t->freqs == NULL) return apr_no_memory(err, "rotary frequencies");
    for (size_t i = 0; i < t->program.n_ropes; i++) {
        const apr_rope_table *const rope = &t->program.ropes[i];
        const apr_tensor **const divisors = rope->divisors >= 0 ? t->slots[rope->divisors].tensors : NULL;
        apr_rope_frequencies(rope, divisors != NULL ? divisors[0] : NULL, t->options.n_tokens, t->freqs + t->rope_offsets[i]);
    }
    return APR_OK;
}

/* The values that an operation reads. */
static void find_inputs(apr_train *t, size_t i)
{
    const apr_op *const op = &t->program.ops[i];

    for (int k = 0; k < APR_GRAD_MAX_IN; k++) t->inputs[i][k] = op->in[k];
    if (op->kind != APR_OP_ATTEND) return;
    for (size_t j = i; j-- > 0;) {
        const apr_op *const store = &t->program.ops[j];
        if (store->kind != APR_OP_KV_STORE || store->state != op->state) continue;
        t->inputs[i][1] = store->in[0];
        t->inputs[i][2] = store->in[1];
        return;
    }
}

static bool makes_logits(const apr_program *p, const apr_op *op) { return op->out >= 0 && p->values[op->out].is_logits; }

static void find_segments(apr_train *t)
{
    const apr_program *const p = &t->program;

    for (t->first_logits = 0; t->first_logits < p->n_ops && !makes_logits(p, &p->ops[t->first_logits]);) t->first_logits++;
    for (size_t i = 0; i < t->first_logits; i++) {
        if (i > 0 && p->ops[i].layer != p->ops[i - 1].layer) t->n_segments++;
        t->segments[i] = t->n_segments;
    }
    t->n_segments++;
    for (size_t i = t->first_logits; i < p->n_ops; i++) t->segments[i] = t->n_segments;
}

/* ---- opening: values ---- */

static void find_readers(apr_train *t)
{
    for (size_t i = 0; i < t->program.n_ops; i++) {
        const apr_op *const op = &t->program.ops[i];
        for (int k = 0; k < APR_GRAD_MAX_IN; k++) {
            if (t->inputs[i][k] < 0) continue;
            value_place *const v = &t->values[t->inputs[i][k]];
            v->last = t->segments[i];
            v->is_kept |= v->segment != t->segments[i];
        }
        if (op->out < 0) continue;
        t->values[op->out] = (value_place){.is_logits = t->program.values[op->out].is_logits,
                                           .has_gradient = t->numbers->ops[op->kind].backward != NULL,
                                           .segment = t->segments[i],
                                           .last = t->segments[i]};
    }
}

static int64_t value_numbers(const apr_train *t, size_t v)
{
    const int64_t rows = t->values[v].is_logits ? t->options.n_logits : t->n_rows;
    return (rows * t->program.values[v].width + 15) / 16 * 16;
}

/* Do two kept values need memory at the same time? Gradients do from their last reader to their maker. */
static bool overlap(const value_place *a, const value_place *b) { return a->segment <= b->last && b->segment <= a->last; }

/* The smallest offset where kept value v is free of those before it that are alive with it. */
static int64_t find_offset(const apr_train *t, size_t v, bool of_gradients)
{
    int64_t at = 0;
    bool moved = true;

    while (moved) {
        moved = false;
        for (size_t u = 0; u < v; u++) {
            const value_place *const other = &t->values[u];
            const int64_t begin = of_gradients ? other->gradient_at : other->at, end = begin + value_numbers(t, u);
            if (!other->is_kept || (of_gradients && !other->has_gradient) || !overlap(other, &t->values[v])) continue;
            if (at >= end || at + value_numbers(t, v) <= begin) continue;
            at = end;
            moved = true;
        }
    }
    return at;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Sizes in numbers of the memory for values. */
typedef struct value_sizes {
    int64_t kept, kept_gradients, local, logits;
} value_sizes;

static void place_kept(apr_train *t, size_t v, value_sizes *sizes)
{
    value_place *const place = &t->values[v];

    place->at = t->options.forward_only ? find_offset(t, v, false) : sizes->kept;
    sizes->kept = larger(sizes->kept, place->at + value_numbers(t, v));
    if (!place->has_gradient || t->options.forward_only) return;
    place->gradient_at = find_offset(t, v, true);
    sizes->kept_gradients = larger(sizes->kept_gradients, place->gradient_at + value_numbers(t, v));
}

static value_sizes place_values(apr_train *t)
{
    value_sizes sizes = {0};
    int64_t local = 0;
    int segment = -1;

    for (size_t v = 0; v < t->program.n_values; v++) {
        value_place *const place = &t->values[v];
        if (place->is_kept) {
            place_kept(t, v, &sizes);
            continue;
        }
        if (place->segment != segment) local = 0;
        segment = place->segment;
        place->at = place->gradient_at = local;
        local += value_numbers(t, v);
        if (place->is_logits) sizes.logits = larger(sizes.logits, local);
        else sizes.local = larger(sizes.local, local);
    }
    return sizes;
}

/* ---- opening: weights ---- */

/* Places the tensors that stay where the pass runs, each at a multiple of 256 bytes. Bytes of all, with the numbers of rows. */
static uint64_t place_stored(apr_train *t)
{
    uint64_t at = 0;

    for (size_t i = 0; i < t->n_trained; i++) {
        stored_tensor *const s = &t->stored[i];
        s->is_there = t->options.keeps_weights && t->backend->keeps != NULL && t->backend->keeps(t, t->trained[i]);
        if (!s->is_there) continue;
        s->copy = *t->trained[i];
        s->at = at;
        at += (s->copy.n_bytes + 255) / 256 * 256;
        t->most_stored_rows = larger(t->most_stored_rows, apr_tensor_rows(&s->copy));
    }
    t->row_numbers_at = at;
    return at + (uint64_t)t->most_stored_rows * sizeof(int32_t);
}

/* How many floats take as much of LINE_FLOATS as the tensor on its way: its bytes as stored, or its numbers. */
static int64_t floats_of(const apr_train *t, const apr_tensor *tensor)
{
    const bool as_stored = t->options.forward_only && train_find_stored(t, tensor) != SIZE_MAX;
    return as_stored ? (int64_t)((tensor->n_bytes + sizeof(float) - 1) / sizeof(float)) : apr_tensor_elems(tensor);
}

/* The operation and weight that used the slot's tensors first, or those of the same tensors in another slot; NULL: none did before. */
static weight_place *earlier_use(apr_train *t, size_t op, int index)
{
    const apr_tensor *const tensor = t->slots[t->program.ops[op].weight[index]].tensors[0];

    for (size_t i = 0; i <= op; i++)
        for (int j = 0; j < (i == op ? index : APR_OP_MAX_WEIGHTS); j++) {
            const int slot = t->program.ops[i].weight[j];
            if (slot >= 0 && t->slots[slot].tensors != NULL && t->slots[slot].tensors[0] == tensor) return &t->weights[i][j];
        }
    return NULL;
}

typedef struct weight_sizes {
    int64_t weights, gradients, shared, floats;
} weight_sizes;

static int64_t rounded(int64_t n) { return (n + 15) / 16 * 16; }

/* Backward goes from the last use to the first, which hands the gradient out. */
static void place_weight(apr_train *t, size_t op, int index, int64_t *at, weight_sizes *sizes)
{
    const int slot = t->program.ops[op].weight[index];
    weight_place *const w = &t->weights[op][index];

    if (slot < 0 || t->slots[slot].tensors == NULL) return;
    *w = (weight_place){.n = t->slots[slot].n, .at = *at, .gives = true};
    *at += rounded(w->n);
    for (int64_t i = 0; i < t->program.weights[slot].count; i++)
        sizes->floats = larger(sizes->floats, floats_of(t, t->slots[slot].tensors[i]));
    weight_place *const first = earlier_use(t, op, index);
    if (first == NULL) return;
    if (!first->is_shared) {
        first->is_shared = true;
        first->gradient_at = sizes->shared;
        sizes->shared += rounded(w->n);
    }
    w->is_shared = true;
    w->gradient_at = first->gradient_at;
    w->gives = false;
}

/* Gradients that are an operation's alone, once it is known which are not. */
static void place_gradients(apr_train *t, size_t op, int64_t *at)
{
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
        weight_place *const w = &t->weights[op][j];
        if (w->n == 0 || w->is_shared) continue;
        w->gradient_at = *at;
        *at += rounded(w->n);
    }
}

/* Those of the logits' operations are there together. */
static weight_sizes place_weights(apr_train *t)
{
    weight_sizes sizes = {0};
    int64_t at = 0;

    for (size_t i = 0; i < t->program.n_ops; i++) {
        if (i <= t->first_logits) at = 0;
        for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) place_weight(t, i, j, &at, &sizes);
        sizes.weights = larger(sizes.weights, at);
    }
    for (size_t i = 0; i < t->program.n_ops; i++) {
        if (i <= t->first_logits) at = 0;
        place_gradients(t, i, &at);
        sizes.gradients = larger(sizes.gradients, at);
    }
    return sizes;
}

/* ---- opening: the plan ---- */

/* Of all operations the most. Those of logits get some rows at a time. */
static size_t work_numbers(const apr_train *t)
{
    static const char there; /* for inputs that an operation has */
    const int64_t n_logits = t->options.n_logits < t->n_rows ? t->options.n_logits : t->n_rows;
    size_t most = 0;

    for (size_t i = 0; i < t->program.n_ops; i++) {
        apr_grad_call call = apr_train_call_of(t, i, i < t->first_logits ? t->n_rows : n_logits);
        for (int k = 0; k < APR_GRAD_MAX_IN; k++) call.in[k] = t->inputs[i][k] >= 0 ? &there : NULL;
        const size_t n = t->backend->work(t, t->program.ops[i].kind, &call);
        most = n > most ? n : most;
    }
    return (most + 15) / 16 * 16;
}

static void set_line(apr_train *t, int line, int64_t n, size_t size)
{
    static const apr_train_line texts[N_LINES] = {
#define X(ID, key, what) [LINE_##ID] = {key, what, 0},
        TRAIN_LINES(X)
#undef X
    };
    t->lines[line] = texts[line];
    t->lines[line].bytes = ((uint64_t)n * size + 63) / 64 * 64;
    t->lines[line].on_device = train_is_on_device(t) && line != LINE_FLOATS;
}

static void make_plan(apr_train *t)
{
    const uint64_t stored = place_stored(t);
    const value_sizes v = place_values(t);
    const weight_sizes w = place_weights(t);
    const int64_t backward = t->options.forward_only ? 0 : 1, by_weights = t->options.squares_only ? 0 : backward,
                  size = (int64_t)t->numbers->size, n_logits = t->options.n_logits;
    const int64_t teacher = n_logits * t->program.vocab_size, floats = w.floats > teacher ? w.floats : teacher;
    const bool on_device = train_is_on_device(t);

    set_line(t, LINE_KEPT, v.kept, t->numbers->size);
    set_line(t, LINE_KEPT_GRADIENTS, v.kept_gradients, t->numbers->size);
    set_line(t, LINE_LOCAL, v.local, t->numbers->size);
    set_line(t, LINE_LOCAL_GRADIENTS, backward * v.local, t->numbers->size);
    set_line(t, LINE_WEIGHTS, w.weights, t->numbers->size);
    set_line(t, LINE_WEIGHT_GRADIENTS, by_weights * w.gradients, t->numbers->size);
    set_line(t, LINE_SHARED_GRADIENTS, by_weights * w.shared, t->numbers->size);
    set_line(t, LINE_STORED, (int64_t)stored, 1);
    set_line(t, LINE_FLOATS, on_device ? floats : size == sizeof(float) ? 0 : w.floats, sizeof(float));
    t->logits_bytes = (1 + backward) * v.logits * size;
    set_line(t, LINE_LOGITS, t->logits_bytes + teacher * 4 + n_logits * 8, 1);
    set_line(t, LINE_WORKSPACE, (int64_t)work_numbers(t), t->numbers->size);
    set_line(t, LINE_IDS, on_device ? (t->n_rows * (int64_t)sizeof(int32_t) + 63) / 64 * 64 + t->n_freqs * (int64_t)sizeof(float) : 0, 1);
}

static apr_status open_tables(apr_train *t, apr_error *err)
{
    const apr_program *const p = &t->program;

    t->slots = calloc(p->n_weights + 1, sizeof *t->slots);
    t->args = calloc(p->n_ops + 1, sizeof *t->args);
    t->inputs = calloc(p->n_ops + 1, sizeof *t->inputs);
    t->weights = calloc(p->n_ops + 1, sizeof *t->weights);
    t->segments = calloc(p->n_ops + 1, sizeof *t->segments);
    t->values = calloc(p->n_values + 1, sizeof *t->values);
    const bool is_there = t->slots != NULL && t->args != NULL && t->inputs != NULL && t->weights != NULL && t->segments != NULL;
    return is_there && t->values != NULL ? APR_OK : apr_no_memory(err, "the program of the model");
}

static apr_status open_program(apr_train *t, apr_error *err)
{
    const apr_program *const p = &t->program;

    APR_TRY(apr_program_emit(&t->program, &t->model->hparams, err));
    if (p->most_positions > 0 && t->options.n_tokens > p->most_positions)
        return apr_fail(err, APR_E_USAGE, "%s: a window of %lld tokens is longer than the %lld positions that the model has",
                        t->model->path, (long long)t->options.n_tokens, (long long)p->most_positions);
    APR_TRY(check_operations(t, err));
    APR_TRY(apr_admission_to_run(p, t->model, err));
    APR_TRY(open_tables(t, err));
    for (size_t i = 0; i < p->n_weights; i++) APR_TRY(find_slot(t, i, err));
    APR_TRY(list_tensors(t, err));
    APR_TRY(make_frequencies(t, err));
    APR_TRY(bind_shapes(t, err));
    for (size_t i = 0; i < p->n_ops; i++) find_inputs(t, i);
    find_segments(t);
    find_readers(t);
    make_plan(t);
    return APR_OK;
}

/* Whole parts of LOGITS_ROWS. A GPU's own number is not more than the rows of a pass. */
static int64_t rows_of_logits(const apr_train *t)
{
    const int64_t own = t->n_rows < t->backend->n_logits && train_is_on_device(t) ? t->n_rows : t->backend->n_logits;
    const int64_t n = t->options.n_logits > 0 ? t->options.n_logits : own;
    return (n + LOGITS_ROWS - 1) / LOGITS_ROWS * LOGITS_ROWS;
}

apr_status apr_train_open(apr_train **train, const apr_model *model, const apr_train_options *options, apr_error *err)
{
    apr_train *const t = calloc(1, sizeof *t);

    *train = NULL;
    if (t == NULL) return apr_no_memory(err, "the backward pass");
    t->model = model;
    t->options = *options;
    t->options.n_windows = options->n_windows > 0 ? options->n_windows : 1;
    t->options.n_threads = options->n_threads > 0 ? options->n_threads : apr_all_threads();
    t->n_rows = t->options.n_tokens * t->options.n_windows;
    t->backend = options->device != NULL ? &train_on_cuda : &train_on_host;
    t->options.n_logits = rows_of_logits(t);
    t->numbers = options->float64 ? &apr_grad_float64 : &apr_grad_float32;
    t->local_of = -1;
    const bool is_possible = !options->float64 || options->device == NULL;
    const apr_status status = is_possible ? open_program(t, err) : apr_fail(err, APR_E_USAGE, "a GPU trains in float32");
    if (status == APR_OK) *train = t;
    else apr_train_close(t);
    return status;
}

void apr_train_close(apr_train *t)
{
    if (t == NULL) return;
    for (size_t i = 0; i < t->program.n_weights && t->slots != NULL; i++) free(t->slots[i].tensors);
    for (int i = 0; i < N_LINES; i++)
        if (t->memory[i] != NULL) t->backend->release(t, i);
    free(t->slots);
    free(t->trained);
    free(t->stored);
    free(t->args);
    free(t->inputs);
    free(t->weights);
    free(t->segments);
    free(t->values);
    free(t->freqs);
    free(t->rope_offsets);
    free(t->zeros);
    apr_program_close(&t->program);
    free(t);
}
