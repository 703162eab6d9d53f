/* session.c - binds a program to a model's tensors, allocates what the plan says, runs the operations. */
#include "runtime/session.h"
#include "formats/bytes.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

const apr_session_options apr_session_defaults = {.n_batch = 512, .n_logits = 16, .kv_dtype = APR_F16};

struct apr_session {
    const apr_model *model;
    const apr_backend *backend;
    apr_program program;
    apr_plan plan;
    const apr_tensor **tensors; /* [n_weights]; NULL: optional and not there */
    float *vectors, *activations, *logits;
    uint8_t *states;
    apr_workspace work;
    apr_session_usage used;
    int64_t position;
    const float *last_logits;

    /* of the batch that is being evaluated */
    const int32_t *ids;
    int64_t n_tokens;
    int64_t first_row, n_rows; /* tokens of the batch whose logits are computed */
};

/* --- opening --- */

static apr_status check_tensor(const apr_session *s, const apr_weight_slot *slot, const apr_tensor *tensor, apr_error *err)
{
    apr_tensor wanted = {.rank = slot->rank, .dims = {slot->dims[0], slot->dims[1], slot->dims[2]}};
    char have[96], want[96];

    if (tensor->rank != slot->rank || memcmp(tensor->dims, wanted.dims, (size_t)slot->rank * sizeof *wanted.dims) != 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' is %s where the hyperparameters say %s", s->model->path, slot->name,
                        apr_dims_text(tensor, have, sizeof have), apr_dims_text(&wanted, want, sizeof want));
    if (!apr_can_decode(tensor->dtype) || !(apr_dtype_is_float(tensor->dtype) || apr_dtype_is_quantized(tensor->dtype)))
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%s' is %s, which is no type of weights that can be run", s->model->path,
                        slot->name, apr_dtypes[tensor->dtype].name);
    if (tensor->data == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' has no data", s->model->path, slot->name);
    return APR_OK;
}

/* Numbers that go with a layer but change nothing here: precomputed frequencies, scales of quantized activations. */
static bool is_idle(const char *name)
{
    static const char *const endings[] = {"rotary_emb.inv_freq", ".input_scale", ".k_scale", ".v_scale"};
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t n_ending = strlen(endings[i]);
        if (n >= n_ending && strcmp(name + n - n_ending, endings[i]) == 0) return true;
    }
    return false;
}

/* A layer's tensor that the program does not use means another model than the one that would be run. */
static apr_status check_leftovers(const apr_session *s, apr_error *err)
{
    apr_status status = APR_OK;
    bool *const is_used = calloc(s->model->n_tensors + 1, sizeof *is_used);

    if (is_used == NULL) return apr_no_memory(err, "the names of the tensors");
    for (size_t i = 0; i < s->program.n_weights; i++) {
        if (s->tensors[i] == NULL) continue;
        is_used[s->tensors[i] - s->model->tensors] = true;
        if (s->tensors[i]->scale != NULL) is_used[s->tensors[i]->scale - s->model->tensors] = true;
    }
    for (size_t i = 0; i < s->model->n_tensors && status == APR_OK; i++) {
        const char *const name = s->model->tensors[i].name;
        if (!is_used[i] && strncmp(name, "model.layers.", 13) == 0 && !is_idle(name))
            status = apr_fail(err, APR_E_UNSUPPORTED,
                              "%s: tensor '%s' has no place in a %s model of %lld layers; leaving it out would give wrong results",
                              s->model->path, name, s->program.architecture, (long long)s->program.num_layers);
    }
    free(is_used);
    return status;
}

static apr_status bind_tensors(apr_session *s, apr_error *err)
{
    if (s->model->n_tensors == 0) return apr_fail(err, APR_E_UNSUPPORTED, "%s: there are no weights to run", s->model->path);
    s->tensors = calloc(s->program.n_weights + 1, sizeof *s->tensors);
    if (s->tensors == NULL) return apr_no_memory(err, "the table of tensors");
    for (size_t i = 0; i < s->program.n_weights; i++) {
        const apr_weight_slot *const slot = &s->program.weights[i];
        s->tensors[i] = apr_model_find(s->model, slot->name);
        if (s->tensors[i] == NULL && slot->optional) continue;
        if (s->tensors[i] == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' is missing", s->model->path, slot->name);
        APR_TRY(check_tensor(s, slot, s->tensors[i], err));
    }
    return check_leftovers(s, err);
}

static apr_status make_plan(apr_session *s, const apr_session_options *o, apr_error *err)
{
    apr_plan_options options = apr_plan_defaults;
    uint64_t *const bytes = malloc((s->program.n_weights + 1) * sizeof *bytes);

    if (bytes == NULL) return apr_no_memory(err, "the sizes of the weights");
    apr_plan_model_weights(&s->program, s->model, bytes);
    options.n_ctx = o->n_ctx;
    options.n_batch = o->n_batch;
    options.n_logits = o->n_logits;
    options.kv_dtype = o->kv_dtype;
    options.budget_bytes = o->budget_bytes;
    options.n_threads = s->work.n_threads;
    options.weight_bytes = bytes;
    const apr_status status = apr_plan_make(&s->plan, &s->program, &options, err);
    free(bytes);
    if (status != APR_OK || s->plan.fits) return status;
    const apr_plan_line *const line = &s->plan.lines[s->plan.breaking];
    return apr_fail(err, APR_E_MEMORY,
                    "%s: needs %.1f MiB, %.1f MiB more than the budget; '%s' (%s) goes over it, and the longest context that fits is %lld",
                    s->model->path, (double)s->plan.host_bytes / 0x1p20, (double)s->plan.short_bytes / 0x1p20, line->label, line->reason,
                    (long long)s->plan.max_ctx);
}

/* n_bytes at a multiple of 64, counted in *used. */
static void *allocate(uint64_t n_bytes, uint64_t *used)
{
    if (n_bytes > SIZE_MAX - 64) return NULL;
    void *const p = aligned_alloc(64, (size_t)apr_align_up(n_bytes > 0 ? n_bytes : 1, 64));
    if (p != NULL) *used = n_bytes;
    return p;
}

static uint64_t line_bytes(const apr_session *s, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(&s->plan, id);
    return line != NULL ? line->bytes : 0;
}

static apr_status allocate_plan(apr_session *s, apr_error *err)
{
    s->vectors = allocate(line_bytes(s, APR_LINE_F32_VECTORS), &s->used.vectors);
    s->states = allocate(s->plan.states_bytes, &s->used.states);
    s->activations = allocate(line_bytes(s, APR_LINE_ACTIVATIONS), &s->used.activations);
    s->logits = allocate(line_bytes(s, APR_LINE_LOGITS), &s->used.logits);
    s->work.slice = s->plan.workspace_slice;
    s->work.data = allocate(line_bytes(s, APR_LINE_WORKSPACE), &s->used.workspace);
    if (s->vectors == NULL || s->states == NULL || s->activations == NULL || s->logits == NULL || s->work.data == NULL)
        return apr_fail(err, APR_E_MEMORY,
                        "%s: not enough memory for the %.1f MiB beside the weights; a shorter context or batch needs less", s->model->path,
                        (double)(s->plan.host_bytes) / 0x1p20);
    for (size_t i = 0; i < s->program.n_weights; i++) {
        const apr_tensor *const tensor = s->tensors[i];
        if (tensor == NULL) continue;
        s->used.weights += apr_align_up(tensor->n_bytes, 64) + (tensor->scale != NULL ? apr_align_up(tensor->scale->n_bytes, 64) : 0);
    }
    s->used.total = s->used.weights + s->used.vectors + s->used.states + s->used.activations + s->used.logits + s->used.workspace;
    return APR_OK;
}

/* Norms, biases and rotary frequencies as float32. */
static void fill_vectors(apr_session *s)
{
    for (size_t i = 0; i < s->program.n_weights; i++)
        if (s->plan.vector_offsets[i] >= 0) apr_decode_rows(s->tensors[i], 0, 1, s->vectors + s->plan.vector_offsets[i]);
    for (size_t i = 0; i < s->program.n_ropes; i++) {
        const apr_rope_table *const rope = &s->program.ropes[i];
        const int64_t divisors = rope->divisors >= 0 ? s->plan.vector_offsets[rope->divisors] : -1;
        float *const freqs = s->vectors + s->plan.rope_offsets[i];
        for (int64_t j = 0; j < rope->n_freqs; j++) freqs[j] = divisors >= 0 ? rope->freqs[j] / s->vectors[divisors + j] : rope->freqs[j];
    }
}

static apr_status open_session(apr_session *s, const apr_session_options *options, apr_error *err)
{
    APR_TRY(apr_program_emit(&s->program, &s->model->hparams, err));
    const apr_op *const missing = apr_program_missing_op(&s->program, s->backend);
    if (missing != NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: a %s model needs the operation '%s' (layer %d), which the %s backend does not have",
                        s->model->path, s->program.architecture, apr_op_name(missing->kind), missing->layer, s->backend->name);
    if (s->model->dialect != APR_DIALECT_HF)
        return apr_fail(err, APR_E_USAGE, "%s: the tensors must have Hugging Face's names before the model can be run", s->model->path);
    APR_TRY(bind_tensors(s, err));
    APR_TRY(make_plan(s, options, err));
    APR_TRY(allocate_plan(s, err));
    fill_vectors(s);
    return APR_OK;
}

apr_status apr_session_open(apr_session **session, const apr_model *model, const apr_session_options *options, apr_error *err)
{
    *session = NULL;
    apr_session *const s = calloc(1, sizeof *s);
    if (s == NULL) return apr_no_memory(err, "the session");
    s->model = model;
    s->backend = options->backend != NULL ? options->backend : &apr_host_backend;
    const int most = 4 * omp_get_num_procs();
    s->work.n_threads = options->n_threads > 0 ? options->n_threads : omp_get_max_threads();
    if (s->work.n_threads > most) s->work.n_threads = most; /* OpenMP ends the process when it cannot start a thread */
    const apr_status status = open_session(s, options, err);
    if (status != APR_OK) {
        apr_session_close(s);
        return status;
    }
    *session = s;
    return APR_OK;
}

void apr_session_close(apr_session *s)
{
    if (s == NULL) return;
    free(s->vectors);
    free(s->states);
    free(s->activations);
    free(s->logits);
    free(s->work.data);
    free(s->tensors);
    apr_plan_close(&s->plan);
    apr_program_close(&s->program);
    free(s);
}

const apr_plan *apr_session_plan(const apr_session *session) { return &session->plan; }
const apr_program *apr_session_program(const apr_session *session) { return &session->program; }
int64_t apr_session_position(const apr_session *session) { return session->position; }
const float *apr_session_logits(const apr_session *session) { return session->last_logits; }
apr_session_usage apr_session_used(const apr_session *session) { return session->used; }

void apr_session_reset(apr_session *session)
{
    session->position = 0;
    session->last_logits = NULL;
}

/* --- running: an operation's indices become pointers --- */

static float *value_at(const apr_session *s, int value)
{
    if (s->program.values[value].is_logits) return s->logits;
    return s->activations + s->plan.value_offsets[value] * s->plan.n_batch;
}

static const float *vector_at(const apr_session *s, int slot)
{
    return slot >= 0 && s->plan.vector_offsets[slot] >= 0 ? s->vectors + s->plan.vector_offsets[slot] : NULL;
}

/* Keys (which = 0) or values (1) of a state. */
static apr_cache cache_at(const apr_session *s, int state, int which)
{
    const apr_state *const facts = &s->program.states[state];
    const int64_t row_bytes = apr_kv_row_bytes(s->plan.kv_dtype, facts->head_dim);
    const uint64_t each = apr_align_up((uint64_t)(row_bytes * facts->n_heads * s->plan.state_cells[state]), 64);
    return (apr_cache){.dtype = s->plan.kv_dtype,
                       .data = s->states + s->plan.state_offsets[state] + (uint64_t)which * each,
                       .n_cells = s->plan.state_cells[state],
                       .row_bytes = row_bytes};
}

static void bind_embed(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->embed = (apr_embed_args){.n_tokens = s->n_tokens,
                                   .width = s->program.values[op->out].width,
                                   .ids = s->ids,
                                   .table = s->tensors[op->weight[0]],
                                   .out = value_at(s, op->out)};
}

static void bind_angles(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    const apr_rope_table *const rope = &s->program.ropes[op->rope];
    args->angles = (apr_angles_args){.n_tokens = s->n_tokens,
                                     .position = s->position,
                                     .n_freqs = rope->n_freqs,
                                     .freqs = s->vectors + s->plan.rope_offsets[op->rope],
                                     .magnitude = rope->magnitude,
                                     .out = value_at(s, op->out)};
}

static void bind_rmsnorm(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->rmsnorm = (apr_rmsnorm_args){.n_tokens = s->n_tokens,
                                       .width = s->program.values[op->out].width,
                                       .chunk = op->chunk,
                                       .eps = op->eps,
                                       .x = value_at(s, op->in[0]),
                                       .weight = vector_at(s, op->weight[0]),
                                       .out = value_at(s, op->out)};
}

static void bind_linear(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    const int64_t n_in = s->program.values[op->in[0]].width;
    const bool is_logits = s->program.values[op->out].is_logits;
    args->linear = (apr_linear_args){.n_tokens = is_logits ? s->n_rows : s->n_tokens,
                                     .n_in = n_in,
                                     .n_out = s->program.values[op->out].width,
                                     .x = value_at(s, op->in[0]) + (is_logits ? s->first_row * n_in : 0),
                                     .weight = s->tensors[op->weight[0]],
                                     .bias = vector_at(s, op->weight[1]),
                                     .out = value_at(s, op->out),
                                     .work = s->work};
}

static void bind_rope(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->rope = (apr_rope_args){.n_tokens = s->n_tokens,
                                 .n_heads = op->n_heads,
                                 .head_dim = op->head_dim,
                                 .n_freqs = s->program.ropes[op->rope].n_freqs,
                                 .x = value_at(s, op->in[0]),
                                 .angles = value_at(s, op->in[1]),
                                 .out = value_at(s, op->out)};
}

static void bind_kv_store(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->kv_store = (apr_kv_store_args){.n_tokens = s->n_tokens,
                                         .position = s->position,
                                         .n_kv_heads = op->n_kv_heads,
                                         .head_dim = op->head_dim,
                                         .k = value_at(s, op->in[0]),
                                         .v = value_at(s, op->in[1]),
                                         .keys = cache_at(s, op->state, 0),
                                         .values = cache_at(s, op->state, 1)};
}

static void bind_attend(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->attend = (apr_attend_args){.n_tokens = s->n_tokens,
                                     .position = s->position,
                                     .n_heads = op->n_heads,
                                     .n_kv_heads = op->n_kv_heads,
                                     .head_dim = op->head_dim,
                                     .window = op->window,
                                     .scale = op->scale,
                                     .q = value_at(s, op->in[0]),
                                     .keys = cache_at(s, op->state, 0),
                                     .values = cache_at(s, op->state, 1),
                                     .out = value_at(s, op->out),
                                     .work = s->work};
}

static void bind_glu(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->glu = (apr_glu_args){.n_tokens = s->n_tokens,
                               .width = s->program.values[op->out].width,
                               .gate = value_at(s, op->in[0]),
                               .up = value_at(s, op->in[1]),
                               .out = value_at(s, op->out),
                               .n_threads = s->work.n_threads};
}

static void bind_add(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->add = (apr_add_args){.n_tokens = s->n_tokens,
                               .width = s->program.values[op->out].width,
                               .a = value_at(s, op->in[0]),
                               .b = value_at(s, op->in[1]),
                               .out = value_at(s, op->out)};
}

static void (*const bind[APR_OP_COUNT])(const apr_session *s, const apr_op *op, apr_op_args *args) = {
    [APR_OP_EMBED] = bind_embed,   [APR_OP_ANGLES] = bind_angles, [APR_OP_RMSNORM] = bind_rmsnorm,
    [APR_OP_LINEAR] = bind_linear, [APR_OP_ROPE] = bind_rope,     [APR_OP_KV_STORE] = bind_kv_store,
    [APR_OP_ATTEND] = bind_attend, [APR_OP_GLU] = bind_glu,       [APR_OP_ADD] = bind_add,
};

static void run_op(const apr_session *s, const apr_op *op)
{
    apr_op_args args;
    bind[op->kind](s, op, &args);
    s->backend->ops[op->kind](&args);
}

/* A marked value into the caller's hidden states: token `first` of n_ids and on. */
static void copy_tap(const apr_session *s, int value, float *hidden, size_t first, size_t n_ids)
{
    const apr_value *const v = &s->program.values[value];
    const size_t row = (size_t)v->tap * n_ids + first;
    memcpy(hidden + row * (size_t)v->width, value_at(s, value), (size_t)(s->n_tokens * v->width) * sizeof *hidden);
}

/* Everything but the logits, for the tokens of the batch. */
static void run_batch(const apr_session *s, const apr_eval_output *out, size_t first, size_t n_ids)
{
    for (size_t i = 0; i < s->program.n_ops; i++) {
        const apr_op *const op = &s->program.ops[i];
        if (op->out >= 0 && s->program.values[op->out].is_logits) continue;
        run_op(s, op);
        if (out->hidden != NULL && op->out >= 0 && s->program.values[op->out].tap >= 0) copy_tap(s, op->out, out->hidden, first, n_ids);
    }
}

/* Logits of the batch's tokens [begin, end), a few rows at a time, handed out; `first` is the batch's place in the call. */
static apr_status run_logits(apr_session *s, const apr_eval_output *out, size_t first, int64_t begin, int64_t end, apr_error *err)
{
    const size_t width = (size_t)s->program.vocab_size;

    for (s->first_row = begin; s->first_row < end; s->first_row += s->n_rows) {
        s->n_rows = end - s->first_row < s->plan.n_logits ? end - s->first_row : s->plan.n_logits;
        for (size_t i = 0; i < s->program.n_ops; i++) {
            const apr_op *const op = &s->program.ops[i];
            if (op->out >= 0 && s->program.values[op->out].is_logits) run_op(s, op);
        }
        s->last_logits = s->logits + (size_t)(s->n_rows - 1) * width;
        if (out->logits != NULL)
            memcpy(out->logits + (out->all_logits ? (first + (size_t)s->first_row) * width : 0), s->logits,
                   (size_t)s->n_rows * width * sizeof *s->logits);
        if (out->on_logits != NULL) APR_TRY(out->on_logits(out->user, (int64_t)first + s->first_row, s->n_rows, s->logits, err));
    }
    return APR_OK;
}

apr_status apr_session_eval(apr_session *s, const int32_t *ids, size_t n_ids, const apr_eval_output *out, apr_error *err)
{
    static const apr_eval_output nothing = {0};

    if (out == NULL) out = &nothing;
    if (n_ids > (size_t)(s->plan.n_ctx - s->position))
        return apr_fail(err, APR_E_NO, "the context of %lld tokens is full: %zu more do not fit behind the first %lld",
                        (long long)s->plan.n_ctx, n_ids, (long long)s->position);
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= s->program.vocab_size)
            return apr_fail(err, APR_E_USAGE, "token id %d is outside the vocabulary of %lld", (int)ids[i],
                            (long long)s->program.vocab_size);

    for (size_t first = 0; first < n_ids;) {
        const size_t left = n_ids - first;
        s->n_tokens = left < (size_t)s->plan.n_batch ? (int64_t)left : s->plan.n_batch;
        s->ids = ids + first;
        run_batch(s, out, first, n_ids);
        const bool is_last = left == (size_t)s->n_tokens;
        const int64_t begin = out->all_logits ? 0 : is_last ? s->n_tokens - 1 : s->n_tokens;
        const apr_status status = run_logits(s, out, first, begin, s->n_tokens, err);
        s->position += s->n_tokens; /* the batch's keys and values are stored, whatever became of its logits */
        if (status != APR_OK) return status;
        first += (size_t)s->n_tokens;
    }
    return APR_OK;
}
