/* program.c - the table of architectures, and the program that one of them emits for a model. */
#include "formats/base/text.h"
#include "runtime/program/families.h"

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

static bool has_attention(const apr_hparams *h)
{
    bool has = h->num_layers <= 0;
    for (int64_t i = 0; i < h->num_layers && !has; i++) has = apr_layer_kind_of(h, i) != APR_LAYER_MAMBA;
    return has;
}

static void check_needed(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    const bool attends = has_attention(h);
    const struct {
        const char *name;
        int64_t value;
    } needed[] = {
        {"hidden_size", h->hidden_size},   {"num_layers", h->num_layers}, {"num_heads", h->num_heads},
        {"num_kv_heads", h->num_kv_heads}, {"head_dim", h->head_dim},     {"vocab_size", h->vocab_size},
    };

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i].value <= 0 && (attends || strstr(needed[i].name, "head") == NULL))
            apr_emit_fail(e, APR_E_DAMAGED, "the model does not state its %s", needed[i].name);
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
        {"index_n_heads", h->index_n_heads, 4096},
        {"index_head_dim", h->index_head_dim, APR_MAX_HEAD_DIM},
        {"index_topk", h->index_topk, 1 << 20},
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

/* Published architectures without a program, and the feature that each of them needs. From the classes of transformers 5.24. */
static const struct {
    const char *architectures, *lacks; /* " a b " */
} lacking[] = {
    {" bloom codegen gptj xglm ", "slopes of attention by distance (ALiBi), or positions of its own"},
    {" stablelm falcon mpt persimmon ", "its own arrangement of layer norms"},
    {" mamba falcon_mamba jamba ", "a selective scan (Mamba 1)"},
    {" bailing_moe_v2_5 bailing_moe_linear ", "linear attention with a decay of its own for each head (lightning attention)"},
    {" falcon-h1 ", "the weights without the multipliers that GGUF multiplies into them (a checkpoint has them)"},
    {" mimo_v2_flash mimo2 laguna step35 step3p5 ", "scaled values and a gate of each head"},
    {" apertus ", "the activation xIELU"},
    {" phimoe ", "routing by sparse mixing, and layer norm with bias"},
    {" nanochat ", "norms without weights and a squared ReLU"},
    {" deepseek_v4 minimax_m3 hy_v4 glm5_next qwen4_exp ", "hyper-connections and compressed caches"},
    {" rwkv rwkv6 rwkv7 xlstm minimax recurrent_gemma ", "its own recurrence"},
    {" bitnet ", "norms inside of its projections, and ternary weights"},
    {" bert roberta modernbert xlm-roberta t5 bart whisper clip siglip ", "an encoder: it writes no text token by token"},
};

const char *apr_family_missing_feature(const char *architecture)
{
    for (size_t i = 0; architecture != NULL && i < sizeof lacking / sizeof *lacking; i++)
        if (apr_has_word(lacking[i].architectures, architecture)) return lacking[i].lacks;
    return NULL;
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
