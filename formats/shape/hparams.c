/* hparams.c - the table of hyperparameters, their checks, and the values that follow from stated ones. */
#include "formats/shape/hparams.h"

#include "formats/shape/family.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define INT  true
#define REAL false
const apr_hparam_field apr_hparam_fields[] = {
#define X(field, type, hf, gguf) {#field, hf, gguf, type, offsetof(apr_hparams, field)},
    APR_HPARAM_LIST(X)
#undef X
};
#undef INT
#undef REAL
const size_t apr_n_hparam_fields = sizeof apr_hparam_fields / sizeof *apr_hparam_fields;

_Static_assert((int)APR_N_FLAGS <= 32, "apr_flags has a bit for each flag");
const apr_hflag_field apr_hflag_fields[] = {
#define X(field, hf, gguf) {#field, hf, gguf, offsetof(apr_hparams, field)},
    APR_HFLAG_LIST(X)
#undef X
};
const size_t apr_n_hflag_fields = sizeof apr_hflag_fields / sizeof *apr_hflag_fields;

const apr_rope_field apr_rope_fields[] = {
    {"factor", offsetof(apr_rope_scaling, factor)},
    {"low_freq_factor", offsetof(apr_rope_scaling, low_freq_factor)},
    {"high_freq_factor", offsetof(apr_rope_scaling, high_freq_factor)},
    {"beta_fast", offsetof(apr_rope_scaling, beta_fast)},
    {"beta_slow", offsetof(apr_rope_scaling, beta_slow)},
    {"attention_factor", offsetof(apr_rope_scaling, attention_factor)},
    {"mscale", offsetof(apr_rope_scaling, mscale)},
    {"mscale_all_dim", offsetof(apr_rope_scaling, mscale_all_dim)},
    {"alpha", offsetof(apr_rope_scaling, alpha)},
    {"partial_rotary_factor", offsetof(apr_rope_scaling, partial_rotary_factor)},
};
const size_t apr_n_rope_fields = sizeof apr_rope_fields / sizeof *apr_rope_fields;
const char *const apr_rope_names[] = {
    [APR_ROPE_PLAIN] = "default",
    [APR_ROPE_LINEAR] = "linear",
    [APR_ROPE_LLAMA3] = "llama3",
    [APR_ROPE_YARN] = "yarn",
    [APR_ROPE_LONGROPE] = "longrope",
    [APR_ROPE_DYNAMIC] = "dynamic",
    [APR_ROPE_PROPORTIONAL] = "proportional",
};
const char apr_layer_letters[] = {[APR_LAYER_FULL] = 'f',  [APR_LAYER_SLIDING] = 's', [APR_LAYER_LINEAR] = 'l', [APR_LAYER_CHUNKED] = 'c',
                                  [APR_LAYER_MAMBA] = 'm', [APR_LAYER_CONV] = 'v',    [APR_LAYER_NONE] = 'n'};
const char apr_ffn_letters[] = {[APR_FFN_DENSE] = 'd', [APR_FFN_EXPERTS] = 'e', [APR_FFN_NONE] = 'n'};

int64_t *apr_hparam_int(apr_hparams *hparams, const apr_hparam_field *field)
{
    return (int64_t *)(void *)((char *)hparams + field->offset);
}
double *apr_hparam_real(apr_hparams *hparams, const apr_hparam_field *field) { return (double *)(void *)((char *)hparams + field->offset); }

bool *apr_hflag(apr_hparams *hparams, const apr_hflag_field *field) { return (bool *)(void *)((char *)hparams + field->offset); }

int64_t apr_hparam_get_int(const apr_hparams *hparams, const apr_hparam_field *field)
{
    return field->is_int ? *(const int64_t *)(const void *)((const char *)hparams + field->offset) : 0;
}

double apr_hparam_get_real(const apr_hparams *hparams, const apr_hparam_field *field)
{
    return field->is_int ? 0.0 : *(const double *)(const void *)((const char *)hparams + field->offset);
}

double apr_hparam_number(const apr_hparams *hparams, const apr_hparam_field *field)
{
    return field->is_int ? (double)apr_hparam_get_int(hparams, field) : apr_hparam_get_real(hparams, field);
}

bool apr_hflag_get(const apr_hparams *hparams, const apr_hflag_field *field)
{
    return *(const bool *)(const void *)((const char *)hparams + field->offset);
}

double *apr_rope_real(apr_rope_scaling *rope, const apr_rope_field *field) { return (double *)(void *)((char *)rope + field->offset); }

double apr_rope_number(const apr_rope_scaling *rope, const apr_rope_field *field)
{
    return *(const double *)(const void *)((const char *)rope + field->offset);
}

bool apr_rope_is_same(const apr_rope_scaling *a, const apr_rope_scaling *b)
{
    bool same = a->kind == b->kind && a->original_context == b->original_context && a->no_truncate == b->no_truncate;
    for (size_t i = 0; i < apr_n_rope_fields; i++)
        same = same && apr_rope_number(a, &apr_rope_fields[i]) == apr_rope_number(b, &apr_rope_fields[i]);
    return same;
}

apr_layer_kind apr_layer_kind_of(const apr_hparams *h, int64_t layer)
{
    return h->layer_kinds != NULL && layer >= 0 && layer < h->num_layers ? (apr_layer_kind)h->layer_kinds[layer] : APR_LAYER_FULL;
}

apr_ffn_kind apr_ffn_kind_of(const apr_hparams *h, int64_t layer)
{
    if (h->ffn_kinds != NULL && layer >= 0 && layer < h->num_layers) return (apr_ffn_kind)h->ffn_kinds[layer];
    return h->num_experts > 0 ? APR_FFN_EXPERTS : APR_FFN_DENSE;
}

bool apr_layer_has_rope(const apr_hparams *h, int64_t layer)
{
    return h->no_rope == NULL || layer < 0 || layer >= h->num_layers || h->no_rope[layer] == 0;
}

bool apr_layer_shares_index(const apr_hparams *h, int64_t layer)
{
    return h->shares_index != NULL && layer >= 0 && layer < h->num_layers && h->shares_index[layer] != 0;
}

bool apr_layer_has_own_index(apr_index_layers index, int64_t layer)
{
    const int64_t after = layer - index.n_first + 1;
    return after <= 0 || index.own_every <= 1 || after % index.own_every == 0;
}

bool apr_layer_slides(apr_window_layers window, int64_t layer)
{
    if (layer < window.n_full_first) return false;
    return window.full_every <= 0 || (layer - window.n_full_first + 1) % window.full_every != 0;
}

static apr_status check_ranges(apr_hparams *h, const char *where, apr_error *err)
{
    static const int64_t max_size = (int64_t)1 << 40;

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        if (field->is_int) {
            const int64_t value = *apr_hparam_int(h, field);
            if (value < 0 || value > max_size)
                return apr_fail(err, APR_E_DAMAGED, "%s: %s is %lld, which no model has", where, field->name, (long long)value);
        } else {
            const double value = *apr_hparam_real(h, field);
            if (!(value >= 0.0 && value < 1e18))
                return apr_fail(err, APR_E_DAMAGED, "%s: %s is %g, which no model has", where, field->name, value);
        }
    }
    if (h->num_layers > APR_MAX_LAYERS)
        return apr_fail(err, APR_E_DAMAGED, "%s: num_layers is %lld, more than %lld", where, (long long)h->num_layers,
                        (long long)APR_MAX_LAYERS);
    return APR_OK;
}

/* Products that are used as tensor or state sizes must stay below 2^40. Each value on its own is in range already. */
static apr_status check_products(const apr_hparams *h, const char *where, apr_error *err)
{
    const struct {
        const char *name_a, *name_b;
        int64_t a, b;
    } products[] = {
        {"num_heads", "head_dim", h->num_heads, h->head_dim},
        {"num_heads", "global_head_dim", h->num_heads, h->global_head_dim},
        {"num_heads", "qk_nope_head_dim", h->num_heads, h->qk_nope_head_dim},
        {"num_heads", "qk_rope_head_dim", h->num_heads, h->qk_rope_head_dim},
        {"num_heads", "v_head_dim", h->num_heads, h->v_head_dim},
        {"num_heads", "kv_lora_rank", h->num_heads, h->kv_lora_rank},
        {"linear_num_value_heads", "linear_value_head_dim", h->linear_num_value_heads, h->linear_value_head_dim},
        {"linear_num_value_heads", "linear_key_head_dim", h->linear_num_value_heads, h->linear_key_head_dim},
        {"linear_num_key_heads", "linear_key_head_dim", h->linear_num_key_heads, h->linear_key_head_dim},
        {"num_shared_experts", "moe_intermediate_size", h->num_shared_experts, h->moe_intermediate_size},
        {"num_shared_experts", "intermediate_size", h->num_shared_experts, h->intermediate_size},
        {"num_layers", "per_layer_input_size", h->num_layers, h->per_layer_input_size},
    };

    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (products[i].a > 0 && products[i].b > ((int64_t)1 << 40) / products[i].a)
            return apr_fail(err, APR_E_DAMAGED, "%s: %s is %lld and %s is %lld, which no model has", where, products[i].name_a,
                            (long long)products[i].a, products[i].name_b, (long long)products[i].b);
    return APR_OK;
}

/* Counts that must divide one another. 0 on either side means that the value is not stated. */
static apr_status check_shares(const apr_hparams *h, const char *where, apr_error *err)
{
    const struct {
        int64_t many, few;
        const char *of_many, *of_few;
    } shares[] = {
        {h->num_heads, h->num_kv_heads, "attention heads", "key/value heads"},
        {h->num_heads, h->num_global_kv_heads, "attention heads", "key/value heads of full layers"},
        {h->linear_num_value_heads, h->linear_num_key_heads, "linear value heads", "linear key heads"},
        {h->num_experts, h->num_expert_groups, "experts", "groups"},
    };

    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        if (shares[i].few > 0 && shares[i].many % shares[i].few != 0)
            return apr_fail(err, APR_E_DAMAGED, "%s: %lld %s cannot share %lld %s", where, (long long)shares[i].many, shares[i].of_many,
                            (long long)shares[i].few, shares[i].of_few);
    return APR_OK;
}

/* No more can be chosen than there are. */
static apr_status check_choices(const apr_hparams *h, const char *where, apr_error *err)
{
    const struct {
        int64_t chosen, all;
        const char *name_of_chosen, *name_of_all;
    } choices[] = {
        {h->num_experts_per_tok, h->num_experts, "num_experts_per_tok", "num_experts"},
        {h->num_expert_groups_used, h->num_expert_groups, "num_expert_groups_used", "num_expert_groups"},
        {h->num_kv_shared_layers, h->num_layers > 0 ? h->num_layers - 1 : 0, "num_kv_shared_layers", "the layers before them"},
    };

    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (choices[i].all > 0 && choices[i].chosen > choices[i].all)
            return apr_fail(err, APR_E_DAMAGED, "%s: %s is %lld, more than %s (%lld)", where, choices[i].name_of_chosen,
                            (long long)choices[i].chosen, choices[i].name_of_all, (long long)choices[i].all);
    return APR_OK;
}

static apr_status check_rope(const apr_rope_scaling *s, const char *where, apr_error *err)
{
    for (size_t i = 0; i < apr_n_rope_fields; i++) {
        const double value = apr_rope_number(s, &apr_rope_fields[i]);
        if (!(value >= 0.0 && value < 1e18))
            return apr_fail(err, APR_E_DAMAGED, "%s: the rotary scaling's %s is %g, which no model has", where, apr_rope_fields[i].name,
                            value);
    }
    if (s->original_context < 0 || s->original_context > (int64_t)1 << 40)
        return apr_fail(err, APR_E_DAMAGED, "%s: the rotary scaling's original_max_position_embeddings is %lld, which no model has", where,
                        (long long)s->original_context);
    if (s->kind == APR_ROPE_PROPORTIONAL && s->partial_rotary_factor > 1)
        return apr_fail(err, APR_E_DAMAGED, "%s: the rotary scaling's partial_rotary_factor is %g, more than 1", where,
                        s->partial_rotary_factor);
    return APR_OK;
}

/* There must be one factor per frequency, each greater than 0. */
static apr_status check_factors(const apr_rope_scaling *s, int64_t rotary_dim, const char *where, apr_error *err)
{
    if (s->n_factors == 0) return APR_OK; /* GGUF keeps them in tensors */
    if (s->short_factor == NULL || s->long_factor == NULL || s->n_factors != rotary_dim / 2)
        return apr_fail(err, APR_E_DAMAGED, "%s: %lld factors of the rotary scaling do not fit %lld frequencies", where,
                        (long long)s->n_factors, (long long)(rotary_dim / 2));
    for (int64_t i = 0; i < s->n_factors; i++)
        if (!(s->short_factor[i] > 0 && s->short_factor[i] < 1e18 && s->long_factor[i] > 0 && s->long_factor[i] < 1e18))
            return apr_fail(err, APR_E_DAMAGED, "%s: factor %lld of the rotary scaling is %g and %g", where, (long long)i,
                            s->short_factor[i], s->long_factor[i]);
    return APR_OK;
}

/* Shares and choices are checked for known families only. Other families may give these fields another meaning. */
static apr_status check(apr_hparams *h, bool is_known, const char *where, apr_error *err)
{
    APR_TRY(check_ranges(h, where, err));
    APR_TRY(check_products(h, where, err));
    if (is_known) APR_TRY(check_shares(h, where, err));
    if (is_known) APR_TRY(check_choices(h, where, err));
    APR_TRY(check_rope(&h->rope, where, err));
    return check_rope(&h->rope_local, where, err);
}

/* full_attention_interval n: every n-th layer attends fully, the others are linear. */
static apr_status layers_from_interval(apr_hparams *h, apr_arena *arena, apr_error *err)
{
    uint8_t *const kinds = apr_arena_alloc(arena, (size_t)h->num_layers);
    if (kinds == NULL) return apr_no_memory(err, "the kinds of the layers");
    for (int64_t i = 0; i < h->num_layers; i++) kinds[i] = (i + 1) % h->full_attention_interval == 0 ? APR_LAYER_FULL : APR_LAYER_LINEAR;
    h->layer_kinds = kinds;
    return APR_OK;
}

enum { MAX_ROTARY = 65536 };

apr_status apr_hparams_complete(apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    if (h->architecture == NULL) h->architecture = "";
    const bool is_known = apr_family_find(h->architecture) != NULL;
    APR_TRY(check(h, is_known, where, err));
    if (h->hidden_size == 0) return APR_OK; /* nothing is known: the weights can still be converted */
    if (h->num_kv_heads == 0) h->num_kv_heads = h->num_heads;
    /* head_dim may stay unknown: the weights can be converted, and only a program refuses the model. */
    if (h->head_dim == 0 && h->num_heads > 0 && h->hidden_size % h->num_heads == 0) h->head_dim = h->hidden_size / h->num_heads;
    if (h->rope_theta == 0.0) h->rope_theta = 10000.0;
    if (h->rotary_dim == 0) h->rotary_dim = h->head_dim;
    if (!is_known && (h->rotary_dim > h->head_dim || h->rotary_dim % 2 != 0)) h->rotary_dim = h->head_dim / 2 * 2;
    if (!is_known && h->rope.n_factors != h->rotary_dim / 2) h->rope.n_factors = 0;
    if (h->head_dim > 0 && (h->rotary_dim > h->head_dim || h->rotary_dim % 2 != 0))
        return apr_fail(err, APR_E_DAMAGED, "%s: rotary dimension %lld does not fit a head of %lld", where, (long long)h->rotary_dim,
                        (long long)h->head_dim);
    if (h->head_dim > 0) APR_TRY(check_factors(&h->rope, h->rotary_dim, where, err));
    if (h->rotary_dim > MAX_ROTARY || h->global_head_dim > MAX_ROTARY) /* tables of this size are allocated */
        return apr_fail(err, APR_E_DAMAGED, "%s: %lld rotary dimensions are more than any model has", where,
                        (long long)(h->rotary_dim > h->global_head_dim ? h->rotary_dim : h->global_head_dim));
    if (h->global_head_dim % 2 != 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: global_head_dim is %lld, which is odd", where, (long long)h->global_head_dim);
    if (h->layer_kinds == NULL && h->full_attention_interval > 1) APR_TRY(layers_from_interval(h, arena, err));
    return APR_OK;
}

double apr_normal_share(double z) { return 0.5 * erfc(-z / sqrt(2.0)); }

/* Newton's steps from 0 on. The share is concave above 0 and convex below it, so they approach from one side. */
double apr_normal_quantile(double share)
{
    const double root_two_pi = sqrt(2.0 * acos(-1.0));
    double z = 0.0;
    for (int i = 0; i < 100; i++) z -= fmax(-0.5, fmin(0.5, (apr_normal_share(z) - share) * root_two_pi * exp(0.5 * z * z)));
    return z;
}

float apr_sparsity_quantile(double share)
{
    const float x = 2.0f * (float)share - 1.0f, root = (float)sqrt(2.0);
    const float inverse_erf = (float)(apr_normal_quantile(0.5 * (1.0 + (double)x)) / sqrt(2.0));
    return inverse_erf * root;
}
