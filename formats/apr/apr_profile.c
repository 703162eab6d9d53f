/* apr_profile.c - checks, before anything is written, what aprender and realizar can load and run. */
#include "formats/apr/apr.h"

#include <string.h>

/* The types that both projects read the same way, smallest first. */
static const apr_dtype shared_types[] = {APR_Q4_K, APR_Q6_K, APR_F16, APR_BF16, APR_F32};
enum { N_SHARED_TYPES = sizeof shared_types / sizeof *shared_types };

bool apr_aprender_supports(apr_dtype dtype)
{
    for (int i = 0; i < N_SHARED_TYPES; i++)
        if (shared_types[i] == dtype) return true;
    return false;
}

/* The smallest shared type with at least as many bits, else f32. Also f32 for integers, which f16 would round. */
static apr_dtype nearest_type(const apr_tensor *t)
{
    for (int i = 0; i < N_SHARED_TYPES && apr_dtype_is_weights(t->dtype); i++) {
        const apr_dtype candidate = shared_types[i];
        const bool fits = apr_tensor_columns(t) % apr_dtypes[candidate].elems_per_block == 0;
        if (fits && apr_dtype_bits(candidate) >= apr_dtype_bits(t->dtype)) return candidate;
    }
    return APR_F32;
}

static apr_status check_tensor(const apr_tensor *t, apr_error *err)
{
    char dims[128];

    if (t->rank < 1)
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s' is a scalar, which aprender cannot hold: make it a vector of one element",
                        t->name);
    if (t->rank == 1 && t->dtype != APR_F32)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "tensor '%s' is a vector of %s, which realizar reads as f32: the nearest type that works is f32", t->name,
                        apr_dtypes[t->dtype].name);
    if (!apr_aprender_supports(t->dtype))
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "tensor '%s' is %s %s, which aprender and realizar read differently: the nearest type that works is %s", t->name,
                        apr_dtypes[t->dtype].name, apr_dims_text(t, dims, sizeof dims), apr_dtypes[nearest_type(t)].name);
    return APR_OK;
}

static const apr_tensor *find(const apr_model *layout, const char *name)
{
    for (size_t i = 0; i < layout->n_tensors; i++)
        if (strcmp(layout->tensors[i].name, name) == 0) return &layout->tensors[i];
    return NULL;
}

/* realizar refuses to load values outside these ranges; 0 means missing. */
static apr_status check_hparams(const apr_hparams *h, apr_error *err)
{
    const struct {
        const char *key;
        int64_t value, max;
    } ranges[] = {
        {"hidden_size", h->hidden_size, 65536},
        {"num_layers", h->num_layers, 256},
        {"num_heads", h->num_heads, 256},
        {"num_kv_heads", h->num_kv_heads, 256},
        {"vocab_size", h->vocab_size, 1000000},
        {"intermediate_size", h->intermediate_size, 262144},
        {"max_position_embeddings", h->max_position_embeddings, 2097152},
    };

    if (h->architecture == NULL || *h->architecture == '\0')
        return apr_fail(
            err, APR_E_UNSUPPORTED,
            "the architecture is not known, and realizar cannot run a file without it: convert from a folder with a config.json");
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < 1 || ranges[i].value > ranges[i].max)
            return apr_fail(err, APR_E_UNSUPPORTED, "%s is %lld, but realizar needs 1 to %lld", ranges[i].key, (long long)ranges[i].value,
                            (long long)ranges[i].max);
    if (h->rope_theta != 0.0 && !(h->rope_theta >= 1.0 && h->rope_theta <= 1e8))
        return apr_fail(err, APR_E_UNSUPPORTED, "rope_theta is %g, but realizar needs 1 to 1e8", h->rope_theta);
    if (h->rms_norm_eps != 0.0 && !(h->rms_norm_eps >= 1e-10 && h->rms_norm_eps <= 0.01))
        return apr_fail(err, APR_E_UNSUPPORTED, "rms_norm_eps is %g, but realizar needs 1e-10 to 0.01", h->rms_norm_eps);
    return APR_OK;
}

static apr_status check_embedding(const apr_model *layout, apr_error *err)
{
    const apr_tensor *embedding = find(layout, "model.embed_tokens.weight");
    const int64_t n = layout->hparams.vocab_size;

    if (embedding == NULL) embedding = find(layout, "token_embd.weight");
    if (embedding == NULL) return apr_fail(err, APR_E_UNSUPPORTED, "model.embed_tokens.weight is missing; realizar cannot run without it");
    if (embedding->rank != 2 || embedding->dims[0] != n)
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s' does not have the %lld rows that vocab_size states", embedding->name,
                        (long long)n);
    return APR_OK;
}

apr_status apr_check_aprender(const apr_model *layout, apr_error *err)
{
    const apr_vocab *const vocab = &layout->vocab;

    for (size_t i = 0; i < layout->n_tensors; i++) APR_TRY(check_tensor(&layout->tensors[i], err));
    if (find(layout, "lm_head.weight") == NULL && find(layout, "output.weight") == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "lm_head.weight is missing; realizar cannot run without it: if it is tied, write the embedding a second time");
    APR_TRY(check_hparams(&layout->hparams, err));
    APR_TRY(check_embedding(layout, err));
    if (vocab->kind == APR_VOCAB_NONE || apr_vocab_needs_file(vocab) || (vocab->n_merges == 0 && vocab->scores == NULL))
        return apr_fail(err, APR_E_UNSUPPORTED, "there is no vocabulary with merges or scores; realizar cannot encode text without one");
    return APR_OK;
}
