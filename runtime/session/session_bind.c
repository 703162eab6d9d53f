/* session_bind.c - binds a program to a model's tensors, and an operation's indices to pointers. */
#include "formats/base/bytes.h"
#include "formats/model/packed_weights.h"
#include "runtime/session/session_parts.h"

#include <stdlib.h>
#include <string.h>

/* --- tensors --- */

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

static bool begins_with(const char *name, const char *head) { return strncmp(name, head, strlen(head)) == 0; }

/* What changes nothing here: precomputed frequencies and scales of quantized activations; towers for pictures and sound, and heads
 * that guess ahead; the output head of a model that is tied to its embedding. */
static bool is_idle(const apr_session *s, const char *name)
{
    static const char ending[] = "rotary_emb.inv_freq";
    static const char *const heads[] = {"mtp.",
                                        "visual.",
                                        "model.visual.",
                                        "vision_tower.",
                                        "model.vision_tower.",
                                        "multi_modal_projector.",
                                        "model.multi_modal_projector.",
                                        "audio_tower.",
                                        "rope_freqs.weight"};
    const size_t n = strlen(name), n_ending = sizeof ending - 1;

    if (apr_is_activation_scale(name, NULL, 0) || (n >= n_ending && strcmp(name + n - n_ending, ending) == 0)) return true;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (begins_with(name, heads[i])) return true;
    return s->model->hparams.tie_word_embeddings && begins_with(name, "lm_head.weight");
}

/* A tensor that the program does not use means another model than the one that would be run. */
static apr_status check_leftovers(const apr_session *s, apr_error *err)
{
    apr_status status = APR_OK;
    bool *const is_used = calloc(s->model->n_tensors + 1, sizeof *is_used);

    if (is_used == NULL) return apr_no_memory(err, "the names of the tensors");
    for (size_t i = 0; i < s->program.n_weights; i++) {
        if (s->tensors[i] == NULL) continue;
        is_used[s->tensors[i] - s->model->tensors] = true;
        const apr_tensor *const scale = s->tensors[i]->scale != NULL ? apr_model_find(s->model, s->tensors[i]->scale->name) : NULL;
        if (scale != NULL) is_used[scale - s->model->tensors] = true;
    }
    for (size_t i = 0; i < s->model->n_tensors && status == APR_OK; i++) {
        const char *const name = s->model->tensors[i].name;
        if (!is_used[i] && !is_idle(s, name))
            status = apr_fail(err, APR_E_UNSUPPORTED,
                              "%s: tensor '%s' has no place in a %s model of %lld layers; leaving it out would give wrong results",
                              s->model->path, name, s->program.architecture, (long long)s->program.num_layers);
    }
    free(is_used);
    return status;
}

apr_status apr_session_bind_tensors(apr_session *s, apr_error *err)
{
    if (s->model->n_tensors == 0) return apr_fail(err, APR_E_UNSUPPORTED, "%s: there are no weights to run", s->model->path);
    APR_TRY(apr_refuse_packed(s->model, "run", err));
    s->tensors = calloc(s->program.n_weights + 1, sizeof *s->tensors);
    s->bound = calloc(s->program.n_weights + 1, sizeof *s->bound);
    s->multiplied = calloc(s->program.n_weights + 1, sizeof *s->multiplied);
    if (s->tensors == NULL || s->bound == NULL || s->multiplied == NULL) return apr_no_memory(err, "the table of tensors");
    for (size_t i = 0; i < s->program.n_weights; i++) {
        const apr_weight_slot *const slot = &s->program.weights[i];
        s->tensors[i] = apr_model_find(s->model, slot->name);
        if (s->tensors[i] == NULL && slot->optional) continue;
        if (s->tensors[i] == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' is missing", s->model->path, slot->name);
        APR_TRY(check_tensor(s, slot, s->tensors[i], err));
        s->bound[i] = s->multiplied[i] = s->tensors[i];
    }
    return check_leftovers(s, err);
}

/* --- operations: indices become pointers --- */

float *apr_session_value_at(const apr_session *s, int value)
{
    if (s->program.values[value].is_logits) return s->logits;
    return s->activations + s->plan.value_offsets[value] * s->plan.n_batch;
}

static const float *vector_at(const apr_session *s, int slot)
{
    return slot >= 0 && s->plan.vector_offsets[slot] >= 0 ? s->vectors + s->plan.vector_offsets[slot] : NULL;
}

/* Keys (which = 0) or values (1) of a state. */
apr_cache apr_session_cache_at(const apr_session *s, int state, int which)
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
                                   .table = s->bound[op->weight[0]],
                                   .out = apr_session_value_at(s, op->out)};
}

static void bind_angles(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    const apr_rope_table *const rope = &s->program.ropes[op->rope];
    args->angles = (apr_angles_args){.n_tokens = s->n_tokens,
                                     .position = s->position,
                                     .n_freqs = rope->n_freqs,
                                     .freqs = s->vectors + s->plan.rope_offsets[op->rope],
                                     .magnitude = rope->magnitude,
                                     .out = apr_session_value_at(s, op->out)};
}

static void bind_rmsnorm(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->rmsnorm = (apr_rmsnorm_args){.n_tokens = s->n_tokens,
                                       .width = s->program.values[op->out].width,
                                       .chunk = op->chunk,
                                       .eps = op->eps,
                                       .x = apr_session_value_at(s, op->in[0]),
                                       .weight = vector_at(s, op->weight[0]),
                                       .out = apr_session_value_at(s, op->out)};
}

static void bind_linear(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    const int64_t n_in = s->program.values[op->in[0]].width;
    const bool is_logits = s->program.values[op->out].is_logits;
    args->linear = (apr_linear_args){.n_tokens = is_logits ? s->n_rows : s->n_tokens,
                                     .n_in = n_in,
                                     .n_out = s->program.values[op->out].width,
                                     .x = apr_session_value_at(s, op->in[0]) + (is_logits ? s->first_row * n_in : 0),
                                     .weight = s->multiplied[op->weight[0]],
                                     .bias = vector_at(s, op->weight[1]),
                                     .out = apr_session_value_at(s, op->out),
                                     .work = s->work};
}

static void bind_rope(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->rope = (apr_rope_args){.n_tokens = s->n_tokens,
                                 .n_heads = op->n_heads,
                                 .head_dim = op->head_dim,
                                 .n_freqs = s->program.ropes[op->rope].n_freqs,
                                 .x = apr_session_value_at(s, op->in[0]),
                                 .angles = apr_session_value_at(s, op->in[1]),
                                 .out = apr_session_value_at(s, op->out)};
}

static void bind_kv_store(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->kv_store = (apr_kv_store_args){.n_tokens = s->n_tokens,
                                         .position = s->position,
                                         .n_kv_heads = op->n_kv_heads,
                                         .head_dim = op->head_dim,
                                         .k = apr_session_value_at(s, op->in[0]),
                                         .v = apr_session_value_at(s, op->in[1]),
                                         .keys = apr_session_cache_at(s, op->state, 0),
                                         .values = apr_session_cache_at(s, op->state, 1)};
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
                                     .q = apr_session_value_at(s, op->in[0]),
                                     .keys = apr_session_cache_at(s, op->state, 0),
                                     .values = apr_session_cache_at(s, op->state, 1),
                                     .out = apr_session_value_at(s, op->out),
                                     .work = s->work};
}

static void bind_glu(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->glu = (apr_glu_args){.n_tokens = s->n_tokens,
                               .width = s->program.values[op->out].width,
                               .gate = apr_session_value_at(s, op->in[0]),
                               .up = apr_session_value_at(s, op->in[1]),
                               .out = apr_session_value_at(s, op->out),
                               .n_threads = s->work.n_threads};
}

static void bind_add(const apr_session *s, const apr_op *op, apr_op_args *args)
{
    args->add = (apr_add_args){.n_tokens = s->n_tokens,
                               .width = s->program.values[op->out].width,
                               .a = apr_session_value_at(s, op->in[0]),
                               .b = apr_session_value_at(s, op->in[1]),
                               .out = apr_session_value_at(s, op->out)};
}

static void (*const bind[APR_OP_COUNT])(const apr_session *s, const apr_op *op, apr_op_args *args) = {
    [APR_OP_EMBED] = bind_embed,   [APR_OP_ANGLES] = bind_angles, [APR_OP_RMSNORM] = bind_rmsnorm,
    [APR_OP_LINEAR] = bind_linear, [APR_OP_ROPE] = bind_rope,     [APR_OP_KV_STORE] = bind_kv_store,
    [APR_OP_ATTEND] = bind_attend, [APR_OP_GLU] = bind_glu,       [APR_OP_ADD] = bind_add,
};

/* A device reads the ids where the workspace is: nothing else needs that yet. */
static apr_status run_on_device(apr_session *s, const apr_op *op, apr_op_args *args, apr_error *err)
{
    const apr_cuda_api *const cuda = s->options.cuda;
    if (op->kind == APR_OP_EMBED) {
        APR_TRY(cuda->upload(s->device, s->work.data, s->ids, (uint64_t)s->n_tokens * sizeof *s->ids, err));
        args->embed.ids = (const int32_t *)(const void *)s->work.data;
    }
    return cuda->run(s->device, op->kind, args, err);
}

apr_status apr_session_run_op(apr_session *s, const apr_op *op, apr_error *err)
{
    apr_op_args args;
    bind[op->kind](s, op, &args);
    if (s->device != NULL) return run_on_device(s, op, &args, err);
    s->backend->ops[op->kind](&args);
    return APR_OK;
}
