/* gguf_hparam_losses.c - lists the hyperparameters that a GGUF cannot express for other readers, llama.cpp above all. Most are found by
 * reading the keys back as another reader does. The important ones have their own message. */
#include "formats/shape/family.h"
#include "formats/shape/gguf_hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct hparam_checking {
    const apr_model *layout;
    const apr_hparams *h;
    const char *arch; /* ggml's name */
    const apr_family_gguf *facts;
    apr_hparams seen; /* as other readers take them from the keys */
    apr_losses *losses;
    apr_error *err;
} hparam_checking;

#define LOSS(c, ...) APR_TRY(apr_loss_add((c)->losses, APR_LOST, (c)->err, __VA_ARGS__))
#define OURS(c, ...) APR_TRY(apr_loss_add((c)->losses, APR_LOST_TO_OTHERS, (c)->err, __VA_ARGS__)) /* see gguf_keys.c */
/* The loss that was just added keeps llama.cpp from opening the file. */
#define REFUSED(c)   ((c)->losses->items[(c)->losses->n_items - 1].is_refusal = true)
#define NOTE(c, ...) APR_TRY(apr_loss_add((c)->losses, APR_NOTE, (c)->err, __VA_ARGS__))

static bool has_dense_layers(const apr_hparams *h)
{
    for (int64_t i = 0; i < h->num_layers; i++)
        if (apr_ffn_kind_of(h, i) == APR_FFN_DENSE) return true;
    return h->num_layers <= 0;
}

/* llama.cpp refuses a file without these keys. intermediate_size is not needed if all layers have experts. */
static apr_status check_missing(const hparam_checking *c)
{
    static const bool wanted[APR_N_NUMBERS] = {
        [APR_NUMBER_AT(hidden_size)] = true,
        [APR_NUMBER_AT(num_layers)] = true,
        [APR_NUMBER_AT(num_heads)] = true,
        [APR_NUMBER_AT(intermediate_size)] = true,
        [APR_NUMBER_AT(max_position_embeddings)] = true,
        [APR_NUMBER_AT(rms_norm_eps)] = true,
    };
    static const bool not_of_mamba[APR_N_NUMBERS] = {[APR_NUMBER_AT(num_heads)] = true, [APR_NUMBER_AT(intermediate_size)] = true};
    const bool has_dense = has_dense_layers(c->h);

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const bool is_unused = (c->facts->all_mamba && not_of_mamba[i]) || (!has_dense && i == APR_NUMBER_AT(intermediate_size));
        const bool is_needed = wanted[i] && !is_unused;
        if (is_needed && !(apr_hparam_number(c->h, field) > 0)) {
            LOSS(c, "config.json has no %s; llama.cpp cannot open a GGUF without %s.%s", field->hf_key, c->arch, field->gguf_key);
            REFUSED(c);
        }
    }
    return APR_OK;
}

/* --- rotary embeddings --- */

static apr_status check_yarn(const hparam_checking *c)
{
    const apr_rope_scaling *const s = &c->h->rope;
    const bool has_pair = c->facts->yarn_log_unit != 0 && s->mscale_all_dim != 0;

    if (s->kind != APR_ROPE_YARN) return APR_OK;
    if (has_pair && s->mscale != s->mscale_all_dim)
        OURS(c, "llama.cpp has one number for YaRN's mscale (%g) and mscale_all_dim (%g)", s->mscale, s->mscale_all_dim);
    if (s->no_truncate) OURS(c, "GGUF has no key for YaRN's \"truncate\": false, and llama.cpp rounds the range");
    return APR_OK;
}

/* Checks the scalings that llama.cpp reads from tensors. */
static apr_status check_divisors(const hparam_checking *c)
{
    const apr_rope_scaling *const s = &c->h->rope;
    const bool is_there = apr_gguf_rope_find(c->layout) != NULL;

    if (s->kind == APR_ROPE_LLAMA3 && !c->facts->reads_rope_freqs) OURS(c, "llama.cpp's %s has no rotary scaling \"llama3\"", c->arch);
    if (s->kind == APR_ROPE_PROPORTIONAL && !is_there)
        OURS(c, "llama.cpp finds the rotary scaling \"proportional\" in the tensor " APR_ROPE_FREQS ", which is not there");
    if (s->kind != APR_ROPE_LONGROPE || is_there) return APR_OK;
    if (s->n_factors > 0) OURS(c, "llama.cpp finds the factors of the rotary scaling \"longrope\" in tensors, which are not there");
    else LOSS(c, "the factors of the rotary scaling \"longrope\" are not carried into GGUF");
    return APR_OK;
}

static apr_status check_rope(const hparam_checking *c)
{
    const apr_hparams *const h = c->h;

    APR_TRY(check_yarn(c));
    APR_TRY(check_divisors(c));
    if (h->rope.kind == APR_ROPE_DYNAMIC && h->rope.alpha == 0)
        OURS(c, "GGUF has no rotary scaling \"dynamic\" (factor %g), which depends on the length of the text", h->rope.factor);
    if (h->rope_theta_local > 0 && h->rope_local.kind != APR_ROPE_PLAIN)
        OURS(c, "GGUF has no keys for the rotary scaling \"%s\" of sliding layers", apr_rope_names[h->rope_local.kind]);
    if (c->facts->has_one_base && h->rope_theta_local > 0 && h->rope_theta_local != h->rope_theta)
        OURS(c, "llama.cpp's %s rotates sliding layers with the base of the others (%g); here it is %g", c->arch, h->rope_theta,
             h->rope_theta_local);
    if (c->facts->rotates_whole_heads && h->head_dim > 0 && h->rotary_dim != h->head_dim)
        OURS(c, "llama.cpp's %s rotates whole heads; this model rotates %lld of %lld dimensions", c->arch, (long long)h->rotary_dim,
             (long long)h->head_dim);
    return APR_OK;
}

/* --- layers --- */

static long long n_layers_of(const apr_hparams *h, apr_layer_kind kind)
{
    long long n = 0;
    for (int64_t i = 0; i < h->num_layers; i++) n += apr_layer_kind_of(h, i) == kind;
    return n;
}

/* Many of llama.cpp's architectures have no sliding window. A window of at least the context's length changes nothing. */
static apr_status check_window(const hparam_checking *c)
{
    const apr_hparams *const h = c->h;
    const long long n_sliding = n_layers_of(h, APR_LAYER_SLIDING);

    const bool has_window = c->facts->has_window && (c->facts->window_layers == 0 || c->facts->window_layers == h->num_layers);

    if (has_window || h->sliding_window <= 0 || n_sliding == 0) return APR_OK;
    if (h->max_position_embeddings > 0 && h->sliding_window >= h->max_position_embeddings) return APR_OK;
    OURS(c, "llama.cpp's %s has no attention window; here %lld of %lld layers see the last %lld tokens only", c->arch, n_sliding,
         (long long)h->num_layers, (long long)h->sliding_window);
    return APR_OK;
}

typedef int kind_of_layer(const apr_hparams *h, int64_t layer);

static int mixes(const apr_hparams *h, int64_t layer) { return (int)apr_layer_kind_of(h, layer); }
static int mixes_without_window(const apr_hparams *h, int64_t layer)
{
    const apr_layer_kind kind = apr_layer_kind_of(h, layer);
    return (int)(kind == APR_LAYER_SLIDING ? APR_LAYER_FULL : kind);
}
static int has_experts(const apr_hparams *h, int64_t layer) { return (int)apr_ffn_kind_of(h, layer); }
static int has_rope(const apr_hparams *h, int64_t layer) { return apr_layer_has_rope(h, layer); }

/* The first layer for which the keys say something else; -1: none. */
static int64_t first_other(const hparam_checking *c, kind_of_layer *kind_of)
{
    for (int64_t i = 0; i < c->h->num_layers; i++)
        if (kind_of(c->h, i) != kind_of(&c->seen, i)) return i;
    return -1;
}

static apr_status check_layers(const hparam_checking *c)
{
    const int64_t mixer = first_other(c, c->facts->has_window ? mixes : mixes_without_window), expert = first_other(c, has_experts),
                  rotated = first_other(c, has_rope);

    APR_TRY(check_window(c));
    if (mixer >= 0)
        OURS(c, "GGUF has no key for the order of the layers of %s, and llama.cpp assumes something else for layer %lld", c->arch,
             (long long)mixer);
    if (expert >= 0 && mixer < 0)
        LOSS(c, "GGUF has no key for which layers of %s have experts, and llama.cpp assumes something else for layer %lld", c->arch,
             (long long)expert);
    if (rotated >= 0)
        OURS(c, "GGUF has no key for which layers of %s have rotary embeddings, and llama.cpp assumes something else for layer %lld",
             c->arch, (long long)rotated);
    return APR_OK;
}

/* --- numbers --- */

static apr_status check_number(const hparam_checking *c, const char *name, double value, double seen, double supposed)
{
    const bool is_same_theta = strcmp(name, "rope_theta_local") == 0 && value == 0 && apr_is_near(seen, c->h->rope_theta);

    if (apr_is_near(value, seen) || is_same_theta || (value == 0 && supposed == 0)) return APR_OK;
    OURS(c, "GGUF has no key for %s in %s: here it is %g, llama.cpp assumes %g", name, c->arch, value, seen);
    return APR_OK;
}

/* Checks the numbers that change the result. Sizes are not among them: the tensors have them. */
static apr_status check_numbers(const hparam_checking *c)
{
    static const bool matters[APR_N_NUMBERS] = {
        [APR_NUMBER_AT(rope_theta)] = true,
        [APR_NUMBER_AT(rope_theta_local)] = true,
        [APR_NUMBER_AT(attention_chunk_size)] = true,
        [APR_NUMBER_AT(attention_multiplier)] = true,
        [APR_NUMBER_AT(query_pre_attn_scalar)] = true,
        [APR_NUMBER_AT(attn_logit_softcapping)] = true,
        [APR_NUMBER_AT(final_logit_softcapping)] = true,
        [APR_NUMBER_AT(embedding_multiplier)] = true,
        [APR_NUMBER_AT(residual_multiplier)] = true,
        [APR_NUMBER_AT(logits_scaling)] = true,
        [APR_NUMBER_AT(logit_scale)] = true,
        [APR_NUMBER_AT(attn_temperature)] = true,
        [APR_NUMBER_AT(attn_temperature_length)] = true,
        [APR_NUMBER_AT(num_experts_per_tok)] = true,
        [APR_NUMBER_AT(num_expert_groups)] = true,
        [APR_NUMBER_AT(num_expert_groups_used)] = true,
        [APR_NUMBER_AT(routed_scaling_factor)] = true,
        [APR_NUMBER_AT(moe_norm_min)] = true,
        [APR_NUMBER_AT(swiglu_limit)] = true,
        [APR_NUMBER_AT(swiglu_alpha)] = true,
        [APR_NUMBER_AT(num_kv_shared_layers)] = true,
    };
    apr_hparams h = *c->h, seen = c->seen, supposed = c->facts->assumes != NULL ? *c->facts->assumes : (apr_hparams){0};

    if (h.rope.kind == APR_ROPE_DYNAMIC && h.rope.alpha > 0) seen.rope_theta = h.rope_theta; /* written with alpha applied */
    if (seen.routed_scaling_factor == 0) seen.routed_scaling_factor = 1;
    if (h.num_expert_groups <= 1) h.num_expert_groups = h.num_expert_groups_used = 0;
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const f = &apr_hparam_fields[i];
        if (!matters[i]) continue;
        APR_TRY(check_number(c, f->name, apr_hparam_number(&h, f), apr_hparam_number(&seen, f), apr_hparam_number(&supposed, f)));
    }
    return APR_OK;
}

static apr_status check_flags(const hparam_checking *c)
{
    const apr_hparams *const h = c->h;

    if (h->num_experts > 0 && h->norm_topk_prob != c->seen.norm_topk_prob)
        OURS(c, "llama.cpp's %s %s the weights of chosen experts to 1, and this model %s", c->arch,
             h->norm_topk_prob ? "does not scale" : "scales", h->norm_topk_prob ? "does" : "does not");
    if (h->scales_embeddings != c->seen.scales_embeddings)
        OURS(c, "llama.cpp's %s %s the embeddings, and this model %s", c->arch, h->scales_embeddings ? "does not scale" : "scales",
             h->scales_embeddings ? "does" : "does not");
    if (c->facts->experts_without_qk_norm > 0 && h->use_qk_norm != c->seen.use_qk_norm)
        OURS(c, "llama.cpp's %s with %lld experts has %s of queries and keys", c->arch, (long long)h->num_experts,
             h->use_qk_norm ? "no norms" : "norms");
    return APR_OK;
}

/* --- what llama.cpp computes differently, whatever the keys are --- */

/* Whole numbers are shapes of tensors, or say which are there: llama.cpp does not open a file with others. */
static apr_status check_fixed(const hparam_checking *c)
{
    const apr_hparams *const h = c->h;
    const int64_t n_own = c->facts->own_kv_layers, n_shared = n_own > 0 && h->num_layers > n_own ? h->num_layers - n_own : 0;

    for (size_t i = 0; i < apr_n_hparam_fields && c->facts->fixed != NULL; i++) {
        const apr_hparam_field *const f = &apr_hparam_fields[i];
        const double value = apr_hparam_number(h, f), fixed = apr_hparam_number(c->facts->fixed, f);
        if (fixed == 0 || apr_is_near(value, fixed)) continue;
        OURS(c, "llama.cpp's %s computes with %s %g, whatever the keys say; here it is %g", c->arch, f->name, fixed, value);
        if (f->is_int && i != APR_NUMBER_AT(num_sparse_layers)) REFUSED(c);
    }
    if (n_own > 0 && h->num_kv_shared_layers != n_shared) {
        OURS(c, "llama.cpp's %s has keys and values of their own in the first %lld layers; here %lld of %lld layers have them", c->arch,
             (long long)n_own, (long long)(h->num_layers - h->num_kv_shared_layers), (long long)h->num_layers);
        REFUSED(c);
    }
    return APR_OK;
}

static bool has_layer(const apr_hparams *h, uint8_t kind)
{
    for (int64_t i = 0; h->layer_kinds != NULL && i < h->num_layers; i++)
        if (h->layer_kinds[i] == kind) return true;
    return false;
}

static apr_status check_arithmetic(const hparam_checking *c)
{
    static const double inner_eps = 1e-6;
    const apr_hparams *const h = c->h;

    if (h->kv_lora_rank > 0 && h->rms_norm_eps > 0 && !apr_is_near(h->rms_norm_eps, inner_eps))
        OURS(c, "norms within latent attention have an epsilon of %g, and llama.cpp takes that of the others (%g)", inner_eps,
             h->rms_norm_eps);
    if (c->facts->ranks_groups_by_two && h->num_expert_groups > 1)
        OURS(c, "llama.cpp's %s ranks groups of experts by their two best experts, this architecture by the best one", c->arch);
    if (c->facts->approximates_gelu) OURS(c, "llama.cpp's %s approximates GELU by tanh, this architecture has it by erf", c->arch);
    if (c->facts->heads_fill_hidden && h->head_dim * h->num_heads != h->hidden_size) {
        OURS(c, "llama.cpp's %s needs head_dim = hidden_size / heads; here %lld heads of %lld are %lld, and hidden_size is %lld", c->arch,
             (long long)h->num_heads, (long long)h->head_dim, (long long)(h->head_dim * h->num_heads), (long long)h->hidden_size);
        REFUSED(c);
    }
    if (c->facts->qk_norm_layers > 0 && h->use_qk_norm != (h->num_layers >= c->facts->qk_norm_layers)) {
        OURS(c,
             "llama.cpp's %s expects norms of queries and keys in models of %lld layers and more, and only there; this one has %lld layers "
             "%s them",
             c->arch, (long long)c->facts->qk_norm_layers, (long long)h->num_layers, h->use_qk_norm ? "with" : "without");
        REFUSED(c);
    }
    if (c->facts->ssm_norm_in_tensors && h->mamba_rms_norm && h->mamba_norm_before_gate) {
        OURS(c, "llama.cpp's %s has the norm of Mamba's outputs after the gate, and this model before it", c->arch);
        REFUSED(c);
    }
    /* It multiplies index keys by a Hadamard matrix, and takes the parts with and without positions to be of one width. */
    const bool is_power = h->index_head_dim >= 64 && (h->index_head_dim & (h->index_head_dim - 1)) == 0;
    if (h->index_n_heads > 0 && (!is_power || h->index_head_dim / 2 != h->qk_rope_head_dim))
        OURS(c,
             "llama.cpp's %s ends at the first token unless index keys have 64, 128, ... numbers and half are rotated; here %lld of %lld",
             c->arch, (long long)h->qk_rope_head_dim, (long long)h->index_head_dim);
    if (c->facts->all_heads_have_keys && h->num_kv_heads != h->num_heads) {
        OURS(c, "llama.cpp's %s needs as many key/value heads (here %lld) as heads (%lld)", c->arch, (long long)h->num_kv_heads,
             (long long)h->num_heads);
        REFUSED(c);
    }
    if (has_layer(h, APR_LAYER_LINEAR) && h->linear_key_head_dim != h->linear_value_head_dim) {
        OURS(c, "llama.cpp's %s needs linear attention with keys (%lld) and values (%lld) of the same width", c->arch,
             (long long)h->linear_key_head_dim, (long long)h->linear_value_head_dim);
        REFUSED(c);
    }
    if (c->facts->nope == APR_NOPE_UNLESS_FINETUNED && h->linear_conv_kernel_dim == 0) {
        LOSS(c, "llama.cpp's %s needs Mamba layers, and this model has none", c->arch);
        REFUSED(c);
    }
    if (h->num_nextn_layers > 0 && c->seen.num_nextn_layers == 0)
        NOTE(c, "llama.cpp's %s has no multi-token prediction; %lld of its layers are not copied", c->arch, (long long)h->num_nextn_layers);
    return APR_OK;
}

/* Makes the standard keys and reads them back. False: the keys cannot be made; the writer will report why. */
static bool see(hparam_checking *c)
{
    apr_kv_list kv = {.arena = &c->losses->arena};

    if (apr_gguf_standard_keys(c->h, true, NULL, 0, &kv, NULL) != APR_OK) return false;
    return apr_gguf_standard_hparams(&kv, &c->seen, kv.arena, "the keys", NULL) == APR_OK &&
           apr_hparams_complete(&c->seen, kv.arena, "the keys", NULL) == APR_OK;
}

apr_status apr_gguf_hparam_losses(const apr_model *layout, apr_losses *losses, apr_error *err)
{
    const apr_hparams *const h = &layout->hparams;
    hparam_checking c = {.layout = layout,
                         .h = h,
                         .arch = apr_gguf_architecture(h),
                         .facts = apr_family_gguf_of(apr_family_find(h->architecture)),
                         .losses = losses,
                         .err = err};

    if (c.arch[0] == '\0') return APR_OK;
    if (h->refusal != NULL) LOSS(&c, "%s, which GGUF has no key for", h->refusal);
    if (h->unknown_fields != NULL) NOTE(&c, "unknown fields of config.json are not copied: %s", h->unknown_fields);
    APR_TRY(check_missing(&c));
    APR_TRY(check_rope(&c));
    if (!see(&c)) return APR_OK;
    APR_TRY(check_layers(&c));
    APR_TRY(check_numbers(&c));
    APR_TRY(check_flags(&c));
    APR_TRY(check_fixed(&c));
    return check_arithmetic(&c);
}
