/* program.c - emits programs: the table of architectures, and the basic functions of the emitter. */
#include "runtime/program/families.h"
#include "runtime/program/op_spec.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    apr_family_fn emit;
} programs[] = {
#define X(name) {#name, apr_emit_##name},
    APR_PROGRAM_LIST(X)
#undef X
};

apr_family_fn apr_family_program_of(const apr_family *family)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(programs[i].name, family->name) == 0) return programs[i].emit;
    return NULL;
}

const apr_op apr_no_op = {.layer = -1, .in = {-1, -1, -1}, .out = -1, .weight = {-1, -1, -1, -1, -1, -1}, .state = -1, .rope = -1};

void apr_emit_fail(apr_emitter *e, apr_status status, const char *format, ...)
{
    char text[512];
    va_list arguments;

    if (e->status != APR_OK) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    e->status = apr_fail(e->err, status, "%s: %s", e->hparams->architecture, text);
}

/* Appends a zeroed element of `size` bytes; arrays double when they are full. NULL after a failure: emit nothing. */
static void *append(apr_emitter *e, void **array, size_t *n, size_t size)
{
    if (e->status != APR_OK) return NULL;
    if ((*n & (*n - 1)) == 0) {
        void *const grown = realloc(*array, (*n == 0 ? 1 : *n * 2) * size);
        if (grown == NULL) {
            e->status = apr_no_memory(e->err, "the program of the model");
            return NULL;
        }
        *array = grown;
    }
    void *const element = (char *)*array + size * (*n)++;
    memset(element, 0, size);
    return element;
}

#define APPEND(e, field) append(e, (void **)&(e)->program->field, &(e)->program->n_##field, sizeof *(e)->program->field)

static const char *layer_name(apr_emitter *e, const char *prefix, const char *name)
{
    const char *const text = e->layer < 0 ? apr_arena_print(&e->program->arena, "%s", name)
                                          : apr_arena_print(&e->program->arena, "%slayers.%d.%s", prefix, e->layer, name);
    if (text == NULL && e->status == APR_OK) e->status = apr_no_memory(e->err, "the program of the model");
    return text;
}

int apr_emit_value(apr_emitter *e, const char *name, int64_t width)
{
    if (width <= 0 || width > APR_MAX_ROW)
        apr_emit_fail(e, APR_E_UNSUPPORTED, "a row of %lld numbers (%s) cannot be run", (long long)width, name);
    apr_value *const value = APPEND(e, values);
    if (value == NULL) return -1;
    *value = (apr_value){.name = layer_name(e, "", name), .width = width, .tap = -1};
    return (int)e->program->n_values - 1;
}

static int emit_slot(apr_emitter *e, const char *name, apr_weight_slot slot)
{
    apr_weight_slot *const weight = APPEND(e, weights);
    if (weight == NULL) return -1;
    slot.name = layer_name(e, e->root, name);
    slot.layer = e->layer;
    if (slot.count == 0) slot.count = 1;
    *weight = slot;
    return (int)e->program->n_weights - 1;
}

int apr_emit_weight(apr_emitter *e, const char *name, apr_role role, int64_t rows, int64_t columns)
{
    return emit_slot(e, name, (apr_weight_slot){.role = role, .rank = 2, .dims = {rows, columns}});
}

int apr_emit_stacked(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns)
{
    return emit_slot(e, name, (apr_weight_slot){.role = role, .rank = 3, .dims = {n, rows, columns}});
}

int apr_emit_matrices(apr_emitter *e, const char *name, apr_role role, int64_t n, int64_t rows, int64_t columns)
{
    return emit_slot(e, name, (apr_weight_slot){.role = role, .rank = 2, .dims = {rows, columns}, .count = n});
}

int apr_emit_vector(apr_emitter *e, const char *name, int64_t n, bool optional)
{
    return emit_slot(e, name, (apr_weight_slot){.role = APR_ROLE_VECTORS, .rank = 1, .dims = {n}, .optional = optional});
}

int apr_emit_state(apr_emitter *e, apr_state state)
{
    apr_state *const slot = APPEND(e, states);
    if (slot == NULL) return -1;
    *slot = state;
    slot->layer = e->layer;
    return (int)e->program->n_states - 1;
}

int apr_emit_exp_vector(apr_emitter *e, const char *name, int64_t n)
{
    const int slot = apr_emit_vector(e, name, n, false);
    if (slot >= 0) e->program->weights[slot].is_log = true;
    return slot;
}

int apr_emit_rope_table(apr_emitter *e) { return APPEND(e, ropes) != NULL ? (int)e->program->n_ropes - 1 : -1; }

/* The operations that read a weight decide how it is used. A vector can only be used as float32. */
static void use_weight(apr_emitter *e, const apr_op *op, int i)
{
    const apr_weight_use use = apr_op_specs[op->kind]->weights[i].use;
    apr_weight_slot *const slot = &e->program->weights[op->weight[i]];

    slot->uses |= use;
    if (use == APR_USE_NONE || (slot->role == APR_ROLE_VECTORS && use != APR_USE_FLOAT))
        apr_emit_fail(e, APR_E_UNSUPPORTED, "'%s' cannot be used by the operation '%s'", slot->name, apr_op_name(op->kind));
}

void apr_emit_op(apr_emitter *e, apr_op op)
{
    apr_op *const slot = APPEND(e, ops);
    if (slot == NULL) return;
    *slot = op;
    slot->layer = e->layer;
    for (int i = 0; i < APR_OP_MAX_WEIGHTS; i++)
        if (op.weight[i] >= 0) use_weight(e, &op, i);
}

void apr_emit_tap(apr_emitter *e, int value)
{
    if (e->status == APR_OK) e->program->values[value].tap = (int)e->program->n_taps++;
}

static void check_needed(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    const struct {
        const char *name;
        int64_t value;
    } needed[] = {
        {"hidden_size", h->hidden_size},   {"num_layers", h->num_layers}, {"num_heads", h->num_heads},
        {"num_kv_heads", h->num_kv_heads}, {"head_dim", h->head_dim},     {"vocab_size", h->vocab_size},
    };

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i].value <= 0) apr_emit_fail(e, APR_E_DAMAGED, "the model does not state its %s", needed[i].name);
}

/* With these limits the products that architectures compute stay far below INT64_MAX. */
static void check_limits(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    const struct {
        const char *name;
        int64_t value, most;
    } limits[] = {
        {"hidden_size", h->hidden_size, APR_MAX_ROW},
        {"vocab_size", h->vocab_size, APR_MAX_ROW},
        {"num_heads", h->num_heads, 65536},
        {"head_dim", h->head_dim, APR_MAX_HEAD_DIM},
        {"global_head_dim", h->global_head_dim, APR_MAX_HEAD_DIM},
        {"intermediate_size", h->intermediate_size, APR_MAX_ROW},
        {"moe_intermediate_size", h->moe_intermediate_size, APR_MAX_ROW},
        {"shared_expert_intermediate_size", h->shared_expert_intermediate_size, APR_MAX_ROW},
        {"moe_latent_size", h->moe_latent_size, APR_MAX_ROW},
        {"num_experts", h->num_experts, 4096},
        {"q_lora_rank", h->q_lora_rank, APR_MAX_ROW},
        {"kv_lora_rank", h->kv_lora_rank, APR_MAX_ROW},
        {"linear_num_key_heads", h->linear_num_key_heads, 4096},
        {"linear_num_value_heads", h->linear_num_value_heads, 4096},
        {"linear_key_head_dim", h->linear_key_head_dim, 4096},
        {"linear_value_head_dim", h->linear_value_head_dim, 4096},
    };

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value > limits[i].most)
            apr_emit_fail(e, APR_E_UNSUPPORTED, "%s is %lld, more than can be run (%lld)", limits[i].name, (long long)limits[i].value,
                          (long long)limits[i].most);
    if (h->num_kv_heads > 0 && h->num_heads % h->num_kv_heads != 0)
        apr_emit_fail(e, APR_E_DAMAGED, "%lld heads cannot share %lld key/value heads", (long long)h->num_heads,
                      (long long)h->num_kv_heads);
}

/* Weights that are kept only as float32 get their own line in a plan, whatever block they belong to. */
static void move_vectors(apr_program *program)
{
    for (size_t i = 0; i < program->n_weights; i++)
        if (program->weights[i].uses == APR_USE_FLOAT) program->weights[i].role = APR_ROLE_VECTORS;
}

static apr_status refuse_family(const char *architecture, apr_error *err)
{
    const char *const lacks = apr_family_missing_feature(architecture);

    if (lacks != NULL)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "architecture '%s' needs %s, which is not implemented; it can be converted and quantized, but not planned or run",
                        architecture, lacks);
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "architecture '%s' is not one of the %zu families that can be run or planned; 'aprconv families' lists them",
                    architecture[0] != '\0' ? architecture : "(not stated)", sizeof programs / sizeof *programs);
}

/* The context that config.json states. YaRN stretches the original context by its factor, even if config.json does not state the
 * product. */
static int64_t own_context(const apr_hparams *h)
{
    const double stretched = h->rope.kind == APR_ROPE_YARN ? (double)h->rope.original_context * h->rope.factor : 0.0;
    const double most = 2147483648.0;
    if (!(stretched > (double)h->max_position_embeddings)) return h->max_position_embeddings;
    return (int64_t)(stretched < most ? stretched : most);
}

apr_status apr_program_emit(apr_program *program, const apr_hparams *hparams, apr_error *err)
{
    const apr_family *const family = apr_family_find(hparams->architecture);
    const apr_family_fn emit = family != NULL ? apr_family_program_of(family) : NULL;
    apr_emitter e = {.program = program,
                     .hparams = hparams,
                     .family = family,
                     .err = err,
                     .layer = -1,
                     .root = "model.",
                     .norm = {.eps = hparams->rms_norm_eps > 0.0 ? (float)hparams->rms_norm_eps : 1e-6f,
                              .offset = family != NULL && family->norms_add_one ? 1.0f : 0.0f},
                     .rotary = {{-1, -1}, {-1, -1}}};

    *program = (apr_program){.hidden_size = hparams->hidden_size,
                             .vocab_size = hparams->vocab_size,
                             .num_layers = hparams->num_layers,
                             .max_context = own_context(hparams)};
    if (emit == NULL) return refuse_family(hparams->architecture, err);
    program->architecture = apr_family_type_of(hparams->architecture)->name;
    check_needed(&e);
    check_limits(&e);
    if (hparams->refusal != NULL) apr_emit_fail(&e, APR_E_UNSUPPORTED, "%s; that is not implemented", hparams->refusal);
    if (e.status == APR_OK) emit(&e);
    if (e.status == APR_OK) move_vectors(program);
    else apr_program_close(program);
    return e.status;
}

char *apr_slot_name(const apr_weight_slot *slot, int64_t index, char *text, size_t n_bytes)
{
    const char *const star = strchr(slot->name, '*');

    if (star == NULL) snprintf(text, n_bytes, "%s", slot->name);
    else snprintf(text, n_bytes, "%.*s%lld%s", (int)(star - slot->name), slot->name, (long long)index, star + 1);
    return text;
}

bool apr_slot_is_read_on_host(const apr_weight_slot *slot) { return slot->from_host && slot->uses == APR_USE_ROWS; }

int64_t apr_slot_elems(const apr_weight_slot *slot)
{
    int64_t n = slot->count;
    for (int i = 0; i < slot->rank; i++)
        if (__builtin_mul_overflow(n, slot->dims[i], &n)) return INT64_MAX;
    return n;
}

void apr_program_close(apr_program *program)
{
    free(program->weights);
    free(program->values);
    free(program->states);
    free(program->ropes);
    free(program->ops);
    apr_arena_close(&program->arena);
    *program = (apr_program){0};
}
