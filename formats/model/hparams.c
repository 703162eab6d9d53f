/* hparams.c - the table of hyperparameters, and what follows from the ones a file states. */
#include "formats/model/hparams.h"

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

static apr_status check_ranges(apr_hparams *h, const char *where, apr_error *err)
{
    static const int64_t max_size = (int64_t)1 << 40, max_layers = 10000;

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
    if (h->num_layers > max_layers)
        return apr_fail(err, APR_E_DAMAGED, "%s: num_layers is %lld, more than %lld", where, (long long)h->num_layers,
                        (long long)max_layers);
    if (h->num_kv_heads > 0 && h->num_heads % h->num_kv_heads != 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: %lld attention heads cannot share %lld key/value heads", where, (long long)h->num_heads,
                        (long long)h->num_kv_heads);
    return APR_OK;
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

apr_status apr_hparams_complete(apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    if (h->architecture == NULL) h->architecture = "";
    APR_TRY(check_ranges(h, where, err));
    if (h->hidden_size == 0) return APR_OK; /* nothing is known: the weights can still be converted */
    if (h->num_kv_heads == 0) h->num_kv_heads = h->num_heads;
    /* Where nothing says how wide a head is, it stays unknown: the weights can be converted, only a program refuses them. */
    if (h->head_dim == 0 && h->num_heads > 0 && h->hidden_size % h->num_heads == 0) h->head_dim = h->hidden_size / h->num_heads;
    if (h->rope_theta == 0.0) h->rope_theta = 10000.0;
    if (h->rotary_dim == 0) h->rotary_dim = h->head_dim;
    if (h->head_dim > 0 && (h->rotary_dim > h->head_dim || h->rotary_dim % 2 != 0))
        return apr_fail(err, APR_E_DAMAGED, "%s: rotary dimension %lld does not fit a head of %lld", where, (long long)h->rotary_dim,
                        (long long)h->head_dim);
    if (h->layer_kinds == NULL && h->full_attention_interval > 1) APR_TRY(layers_from_interval(h, arena, err));
    return APR_OK;
}

/* By how much frequency i is divided: by nothing where it turns more than high_freq_factor times in the original context, by
 * `factor` where less than low_freq_factor times, in between by a mixture that is linear in the turns. */
double apr_rope_divisor(const apr_rope_scaling *rope, double theta, int64_t rotary_dim, int64_t i)
{
    static const double two_pi = 6.283185307179586;
    const double turns = (double)rope->original_context * pow(theta, -2.0 * (double)i / (double)rotary_dim) / two_pi;
    const double low = rope->low_freq_factor, high = rope->high_freq_factor;
    const double kept = turns <= low ? 0.0 : turns >= high ? 1.0 : (turns - low) / (high - low);
    return 1.0 / ((1.0 - kept) / rope->factor + kept);
}
