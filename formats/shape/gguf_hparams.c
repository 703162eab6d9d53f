/* gguf_hparams.c - reads GGUF's ARCH.* keys into hyperparameters, which mean the same for every format. */
#include "formats/shape/gguf_hparams.h"
#include "formats/shape/gguf_keys.h"

#include <stdio.h>

/* --- looking up a key --- */

const apr_kv *apr_gguf_key(apr_key_reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
    return apr_kv_find(r->kv, r->key);
}

bool apr_gguf_key_int(apr_key_reader *r, const char *name, int64_t *value)
{
    const apr_kv *const item = apr_gguf_key(r, name);

    if (item == NULL || item->type != APR_KV_ARRAY) return apr_kv_get_int(r->kv, r->key, value);
    if (item->n_elems == 0) return false;
    *value = apr_kv_elem_int(item, 0);
    for (uint64_t i = 1; i < item->n_elems; i++) {
        const int64_t v = apr_kv_elem_int(item, i);
        if (v > *value) *value = v;
    }
    return true;
}

bool apr_gguf_key_real(apr_key_reader *r, const char *name, double *value)
{
    const apr_kv *const item = apr_gguf_key(r, name);
    if (!apr_kv_get_real(r->kv, r->key, value)) return false;
    if (item->type == APR_KV_F32) *value = apr_gguf_shortest_decimal(*value);
    return true;
}

/* --- the table --- */

static const char *key_of_field(const apr_family_gguf *facts, const apr_hparam_field *field)
{
    for (size_t i = 0; i < APR_MAX_GGUF_SPELLINGS && facts->spellings[i].field != NULL; i++)
        if (strcmp(facts->spellings[i].field, field->name) == 0) return facts->spellings[i].key;
    return field->gguf_key;
}

static void read_table(apr_key_reader *r, apr_hparams *h)
{
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const char *const key = key_of_field(r->facts, field);
        if (key[0] == '\0') continue;
        if (field->is_int) apr_gguf_key_int(r, key, apr_hparam_int(h, field));
        else apr_gguf_key_real(r, key, apr_hparam_real(h, field));
    }
    for (size_t i = 0; i < apr_n_hflag_fields; i++)
        if (apr_hflag_fields[i].gguf_key[0] != '\0') {
            apr_gguf_key(r, apr_hflag_fields[i].gguf_key);
            apr_kv_get_bool(r->kv, r->key, apr_hflag(h, &apr_hflag_fields[i]));
        }
    if (r->facts->eps != APR_EPS_RMS) apr_gguf_key_real(r, "attention.layer_norm_epsilon", &h->rms_norm_eps);
}

/* --- what is not a field of the table --- */

/* Latent attention (MLA): key_length is that of the cached latent, key_length_mla that of a head. Old files lack the latter. */
static void read_latent(apr_key_reader *r, apr_hparams *h)
{
    if (h->kv_lora_rank <= 0) return;
    if (apr_gguf_key_int(r, "attention.key_length_mla", &h->head_dim)) h->num_kv_heads = h->num_heads;
    else apr_gguf_key_int(r, "attention.value_length", &h->v_head_dim);
    h->qk_rope_head_dim = h->rotary_dim;
    if (h->head_dim > h->rotary_dim && h->rotary_dim >= 0) h->qk_nope_head_dim = h->head_dim - h->rotary_dim;
}

/* Sliding layers may have another head size (key_length_swa). The plain keys then describe the full layers. */
static void read_global_heads(apr_key_reader *r, apr_hparams *h)
{
    int64_t of_sliding;

    if (!apr_gguf_key_int(r, "attention.key_length_swa", &of_sliding)) return;
    h->global_head_dim = h->head_dim;
    h->head_dim = of_sliding;
    h->rotary_dim = of_sliding;
    apr_gguf_key_int(r, "rope.dimension_count_swa", &h->rotary_dim);
    h->enable_moe_block = h->num_experts > 0;
}

/* Reads the numbers of key/value heads of full and of other layers. Needs layer_kinds. */
static void read_kv_heads(apr_key_reader *r, apr_hparams *h)
{
    const apr_kv *const heads = apr_gguf_key(r, "attention.head_count_kv");
    int64_t most[2] = {0, 0}; /* of full and of other layers */

    if (h->global_head_dim == 0 || h->layer_kinds == NULL || heads == NULL || heads->type != APR_KV_ARRAY) return;
    for (int64_t i = 0; i < h->num_layers; i++) {
        const int64_t n = apr_kv_elem_int(heads, (uint64_t)i);
        int64_t *const of_kind = &most[h->layer_kinds[i] != APR_LAYER_FULL];
        if (n > *of_kind) *of_kind = n;
    }
    if (most[0] <= 0 || most[1] <= 0) return;
    h->num_kv_heads = most[1];
    h->num_global_kv_heads = most[0];
}

/* Layers that reuse an earlier layer's keys and values may have feed-forwards twice as wide. */
static void read_wide_mlp(apr_key_reader *r, apr_hparams *h)
{
    const apr_kv *const widths = apr_gguf_key(r, "feed_forward_length");

    if (h->num_kv_shared_layers <= 0 || widths == NULL || widths->type != APR_KV_ARRAY) return;
    const int64_t first = apr_kv_elem_int(widths, 0);
    h->use_double_wide_mlp = first > 0 && h->intermediate_size / 2 == first && h->intermediate_size % 2 == 0;
    if (h->use_double_wide_mlp) h->intermediate_size = first;
}

static void read_sizes(apr_key_reader *r, apr_hparams *h)
{
    int64_t inner;

    if (h->num_nextn_layers > 0 && h->num_nextn_layers < h->num_layers) h->num_layers -= h->num_nextn_layers;
    if (apr_gguf_key_int(r, "ssm.inner_size", &inner) && h->linear_num_value_heads > 0)
        h->linear_value_head_dim = inner / h->linear_num_value_heads;
    if (r->facts->shares_by_count && h->num_shared_experts > 0) h->shared_expert_intermediate_size = 0;
    if (r->facts->shares_one && h->num_experts > 0 && h->shared_expert_intermediate_size == 0)
        h->shared_expert_intermediate_size = apr_gguf_expert_width(h);
    if (r->facts->nope == APR_NOPE_ALL) h->rotary_dim = 0; /* the key means nothing there */
    if (r->facts->experts_without_qk_norm > 0 && h->num_experts == r->facts->experts_without_qk_norm) h->use_qk_norm = false;
    read_latent(r, h);
    read_global_heads(r, h);
    if (r->facts->wide_layers > 0 && h->num_heads > 0) {
        const int64_t width = h->hidden_size / h->num_heads;
        h->query_pre_attn_scalar = (double)(h->num_layers == r->facts->wide_layers || h->head_dim == 0 ? width : h->head_dim);
    }
}

/* --- the family --- */

/* Several families may share one ggml name. A key decides between them; otherwise the first is taken. */
static const apr_family *find_family(apr_key_reader *r)
{
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_gguf_choice *const choice = &apr_families[i]->gguf.chosen_by;
        int64_t value = 0;
        if (choice->key == NULL || !apr_family_is_in_ggml(apr_families[i], r->arch)) continue;
        apr_gguf_key_int(r, choice->key, &value);
        if (value >= choice->least && value <= choice->most) return apr_families[i];
    }
    return apr_family_of_ggml(r->arch);
}

static apr_status name_architecture(apr_key_reader *r, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    apr_str arch;

    if (!apr_kv_get_string(r->kv, "general.architecture", &arch)) return APR_OK; /* a file of bare tensors */
    if (arch.n_bytes == 0 || arch.n_bytes > APR_MAX_GGUF_ARCH || memchr(arch.text, '\0', arch.n_bytes) != NULL || !apr_str_is_utf8(arch))
        return apr_fail(err, APR_E_DAMAGED, "%s: general.architecture is not a name: it has %zu bytes", r->where, arch.n_bytes);
    memcpy(r->arch, arch.text, arch.n_bytes);
    r->family = find_family(r);
    r->facts = apr_family_gguf_of(r->family);
    if (r->facts->assumes != NULL) *h = *r->facts->assumes;
    const char *const name = r->family != NULL ? r->family->types[0].name : r->arch;
    h->architecture = apr_arena_copy(arena, name, strlen(name));
    return h->architecture != NULL ? APR_OK : apr_no_memory(err, "the name of the architecture");
}

apr_status apr_gguf_standard_hparams(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    apr_key_reader r = {.kv = kv, .facts = apr_family_gguf_of(NULL), .where = where};

    *h = (apr_hparams){.architecture = ""};
    APR_TRY(name_architecture(&r, h, arena, err));
    if (r.arch[0] == '\0') return APR_OK;
    read_table(&r, h);
    read_sizes(&r, h);
    apr_gguf_read_rope(&r, h);
    if (h->attn_temperature > 0 && h->attn_temperature_length == 0) h->attn_temperature_length = (double)h->rope.original_context;
    const apr_kv *const tokens = apr_kv_find(kv, "tokenizer.ggml.tokens");
    if (h->vocab_size == 0 && tokens != NULL && tokens->type == APR_KV_ARRAY && tokens->n_elems <= INT32_MAX)
        h->vocab_size = (int64_t)tokens->n_elems;
    APR_TRY(apr_gguf_read_layers(&r, h, arena, err));
    read_kv_heads(&r, h);
    read_wide_mlp(&r, h);
    return APR_OK;
}

apr_status apr_gguf_hparams(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    APR_TRY(apr_gguf_standard_hparams(kv, h, arena, where, err));
    return h->architecture[0] != '\0' ? apr_gguf_aprkit_keys_read(kv, h, arena, where, err) : APR_OK;
}
