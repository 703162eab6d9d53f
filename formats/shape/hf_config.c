/* hf_config.c - config.json to hyperparameters and back. Reads the old style, the new style and nested files, and gives absent fields the
 * class's defaults. Writes what transformers 4 and 5 read in the same way. */
#include "formats/shape/hf_config.h"
#include "formats/shape/hf_config_values.h"
#include "formats/tensor/text_config.h"

#include <math.h>
#include <string.h>

typedef apr_config_reading reading;

/* --- fields of the tables --- */

double apr_family_default(const apr_family_config *config, const apr_hparam_field *field)
{
    if (config == NULL) return 0;
    const double usual[APR_N_NUMBERS] = {[APR_NUMBER_AT(num_kv_heads)] = (double)config->num_kv_heads,
                                         [APR_NUMBER_AT(head_dim)] = (double)config->head_dim,
                                         [APR_NUMBER_AT(max_position_embeddings)] = (double)config->max_position_embeddings,
                                         [APR_NUMBER_AT(sliding_window)] = (double)config->sliding_window,
                                         [APR_NUMBER_AT(rms_norm_eps)] = config->rms_norm_eps};
    const double value = usual[field - apr_hparam_fields];
    return value != 0 ? value : apr_hparam_number(&config->defaults, field);
}

static const char *usual_key(apr_field field)
{
    return field < APR_FIRST_FLAG ? apr_hparam_fields[field - APR_FIRST_NUMBER].hf_key : apr_hflag_fields[field - APR_FIRST_FLAG].hf_key;
}

const char *apr_family_hf_key(const apr_family_config *config, apr_field field)
{
    for (size_t i = 0; i < APR_MAX_SPELLINGS && config->spellings[i].field != APR_NO_FIELD; i++)
        if (config->spellings[i].field == field) return config->spellings[i].hf_key;
    return usual_key(field);
}

bool apr_family_key_is_taken(const apr_family_config *config, apr_field field, const char *hf_key)
{
    for (size_t i = 0; config != NULL && i < APR_MAX_SPELLINGS && config->spellings[i].field != APR_NO_FIELD; i++)
        if (strcmp(config->spellings[i].hf_key, hf_key) == 0 && config->spellings[i].field != field) return true;
    return false;
}

/* The key that a field of the tables has in this file: the family's spelling, or the usual one. A key that is not null is preferred.
 * NULL: none is there. */
static const char *key_of(const reading *r, apr_field field)
{
    const char *const usual = usual_key(field);
    const char *keys[APR_MAX_SPELLINGS + 1], *stated = NULL;
    size_t n = 0;

    for (size_t i = 0; r->spec != NULL && i < APR_MAX_SPELLINGS && r->spec->spellings[i].field != APR_NO_FIELD; i++)
        if (r->spec->spellings[i].field == field) keys[n++] = r->spec->spellings[i].hf_key;
    if (!apr_family_key_is_taken(r->spec, field, usual)) keys[n++] = usual;
    for (size_t i = 0; i < n; i++) {
        if (keys[i][0] == '\0') continue;
        if (apr_config_find(r, keys[i]) != NULL) return keys[i];
        if (stated == NULL && apr_config_has(r, keys[i])) stated = keys[i];
    }
    return stated;
}

static apr_status read_string(const reading *r, const cJSON *item, const char **value)
{
    if (!cJSON_IsString(item)) return APR_OK;
    *value = apr_arena_copy(r->arena, item->valuestring, strlen(item->valuestring));
    return *value != NULL ? APR_OK : apr_no_memory(r->err, "a config");
}

/* Takes the class's default for an absent field. null is not absent: it asks for the general rule. The part of a larger model may leave
 * out even its size (LLaVA 1.5), a whole config.json may not. */
static void take_default(const reading *r, size_t at)
{
    const apr_hparam_field *const field = &apr_hparam_fields[at];
    const double value = apr_family_default(r->spec, field);
    const bool is_nested = r->text != r->root && apr_json_get_string(r->text, "model_type") != NULL;
    const bool is_size = at == APR_NUMBER_AT(hidden_size) || at == APR_NUMBER_AT(num_layers);

    if (value == 0 || (is_size ? !is_nested : r->h->hidden_size == 0)) return;
    if (!field->is_int) *apr_hparam_real(r->h, field) = value;
    else if (at != APR_NUMBER_AT(num_kv_heads) || r->h->num_heads % (int64_t)value == 0) *apr_hparam_int(r->h, field) = (int64_t)value;
}

static apr_status read_numbers(const reading *r)
{
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const char *const key = key_of(r, (apr_field)(APR_FIRST_NUMBER + i));
        if (key == NULL) take_default(r, i);
        else if (field->is_int) APR_TRY(apr_config_int(r, key, apr_hparam_int(r->h, field)));
        else APR_TRY(apr_config_real(r, apr_config_find(r, key), key, apr_hparam_real(r->h, field)));
    }
    return APR_OK;
}

/* Common keys of unknown families. */
static apr_status read_aliases(const reading *r)
{
    static const char *const experts[] = {"num_local_experts", "n_routed_experts", "moe_num_experts"};
    static const char *const eps[] = {"layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"};

    if (r->spec != NULL) return APR_OK;
    for (size_t i = 0; i < sizeof experts / sizeof *experts && r->h->num_experts == 0; i++)
        APR_TRY(apr_config_int(r, experts[i], &r->h->num_experts));
    for (size_t i = 0; i < sizeof eps / sizeof *eps && r->h->rms_norm_eps == 0; i++)
        APR_TRY(apr_config_real(r, apr_config_find(r, eps[i]), eps[i], &r->h->rms_norm_eps));
    return APR_OK;
}

static apr_status read_flags(const reading *r)
{
    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        bool *const flag = apr_hflag(r->h, &apr_hflag_fields[i]);
        const char *const key = key_of(r, (apr_field)(APR_FIRST_FLAG + i));
        *flag = key == NULL && r->spec != NULL && apr_flags_have(r->spec->flags_on, i);
        if (key != NULL) APR_TRY(apr_config_bool(r, key, flag));
        *flag |= r->spec != NULL && apr_flags_have(r->spec->flags_always, i);
    }
    return APR_OK;
}

/* --- derived values --- */

/* "mamba_d_head": "auto" means expand * hidden_size / heads. */
static apr_status settle_mamba(const reading *r)
{
    apr_hparams *const h = r->h;
    int64_t expand = 2;

    if (r->spec == NULL || !r->spec->mamba || h->linear_value_head_dim != 0 || h->linear_num_value_heads <= 0) return APR_OK;
    APR_TRY(apr_config_int(r, "mamba_expand", &expand));
    if (expand > 0 && expand < 1000 && h->hidden_size > 0 && h->hidden_size < (int64_t)1 << 40)
        h->linear_value_head_dim = expand * h->hidden_size / h->linear_num_value_heads;
    return APR_OK;
}

/* Qwen3-VL adds images to the first layers, one for each of these layers of its tower. */
static void read_deepstack(const reading *r)
{
    const cJSON *const layers = apr_json_get(apr_json_get(r->root, "vision_config"), "deepstack_visual_indexes");
    if (cJSON_IsArray(layers)) r->h->num_deepstack_layers = cJSON_GetArraySize(layers);
}

static apr_status settle(const reading *r)
{
    apr_hparams *const h = r->h;
    static const int64_t max_size = (int64_t)1 << 40;

    if (r->spec == NULL || !apr_is_any_of("attn_temperature_tuning", r->spec->computes))
        h->attn_temperature = h->attn_temperature_length = 0;
    read_deepstack(r);
    APR_TRY(settle_mamba(r));
    if (r->spec != NULL && r->spec->settle != NULL) APR_TRY(r->spec->settle(r));
    const bool is_latent = h->kv_lora_rank > 0 && h->qk_nope_head_dim > 0 && h->qk_rope_head_dim > 0;
    if (is_latent && h->qk_nope_head_dim < max_size && h->qk_rope_head_dim < max_size) {
        h->head_dim = h->qk_nope_head_dim + h->qk_rope_head_dim;
        h->rotary_dim = h->qk_rope_head_dim;
    }
    return APR_OK;
}

/* --- the whole --- */

/* Prefers the family of the language model's part, if it is known: a mistral3 contains a mistral, a kimi_k25 a deepseek_v3. */
static void find_spec(reading *r)
{
    const apr_family *const outer = apr_family_find(r->h->architecture);
    const char *const inner_type = apr_json_get_string(r->text, "model_type");
    const apr_family *const inner = apr_family_find(inner_type);

    r->spec = inner != NULL && inner->config != NULL ? inner->config : outer != NULL ? outer->config : NULL;
    if (inner != NULL && inner != outer) r->h->architecture = apr_family_type_of(inner_type)->name;
}

/* A larger model may state it for its text part, for the whole, or differently for both. One of them is enough: apr_resolve_tied_head corrects it
 * if the file has an output head. */
static apr_status read_tie(const reading *r)
{
    const char *const key = "tie_word_embeddings";
    const cJSON *const whole = apr_json_get(r->root, key);

    if (r->text == r->root || whole == NULL || cJSON_IsNull(whole)) return APR_OK;
    if (!cJSON_IsBool(whole)) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is neither true nor false", r->where, key);
    r->h->tie_word_embeddings |= cJSON_IsTrue(whole);
    return APR_OK;
}

static apr_status read_all(reading *r)
{
    const cJSON *const classes = apr_json_get(r->root, "architectures");
    const cJSON *const model_type = apr_json_get(r->root, "model_type");
    const char *dtype_key = apr_config_find(r, "torch_dtype") != NULL ? "torch_dtype" : "dtype";

    APR_TRY(read_string(r, model_type != NULL ? model_type : apr_config_find(r, "model_type"), &r->h->architecture));
    if (cJSON_IsArray(classes)) APR_TRY(read_string(r, classes->child, &r->h->hf_class));
    APR_TRY(read_string(r, apr_config_find(r, dtype_key), &r->h->torch_dtype));
    find_spec(r);
    APR_TRY(read_numbers(r));
    APR_TRY(read_aliases(r));
    APR_TRY(read_flags(r));
    APR_TRY(read_tie(r));
    APR_TRY(settle(r));
    APR_TRY(apr_config_read_rope(r));
    APR_TRY(apr_config_read_layers(r));
    return apr_config_check(r);
}

apr_status apr_hf_config_read(const apr_attachment *config, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err)
{
    cJSON *root;

    *hparams = (apr_hparams){.architecture = ""};
    APR_TRY(apr_json_parse(&root, config->data, config->n_bytes, where, err));
    const cJSON *const nested = apr_config_text_part(root);
    reading r = {.root = root, .text = nested != NULL ? nested : root, .h = hparams, .arena = arena, .where = where, .err = err};
    const apr_status status = cJSON_IsObject(root) ? read_all(&r) : apr_fail(err, APR_E_DAMAGED, "%s: not a JSON object", where);
    cJSON_Delete(root);
    return status;
}

apr_status apr_hf_config_check(const apr_attachment *config, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err)
{
    apr_arena own = {0};
    apr_hparams read;
    apr_status status = apr_hf_config_read(config, &read, &own, where, err);

    if (status == APR_OK && read.refusal != NULL) {
        hparams->refusal = apr_arena_copy(arena, read.refusal, strlen(read.refusal));
        if (hparams->refusal == NULL) status = apr_no_memory(err, "a config");
    }
    if (status == APR_OK && read.unknown_fields != NULL) {
        hparams->unknown_fields = apr_arena_copy(arena, read.unknown_fields, strlen(read.unknown_fields));
        if (hparams->unknown_fields == NULL) status = apr_no_memory(err, "a config");
    }
    apr_arena_close(&own);
    return status;
}

bool apr_hf_config_ties(const apr_attachment *config)
{
    apr_arena own = {0};
    apr_hparams read;
    const bool ties = apr_hf_config_read(config, &read, &own, "config.json", NULL) == APR_OK && read.tie_word_embeddings;
    apr_arena_close(&own);
    return ties;
}

/* --- writing --- */

/* True: an earlier field has the same key and is written. */
static bool is_written(const apr_hparams *h, const apr_family_config *f, size_t n_fields, const char *key)
{
    for (size_t i = 0; i < n_fields; i++)
        if (apr_hparam_number(h, &apr_hparam_fields[i]) > 0 && strcmp(apr_family_hf_key(f, (apr_field)(APR_FIRST_NUMBER + i)), key) == 0)
            return true;
    return false;
}

/* Overrides a default of the class for a value that the model does not have: with null if the class accepts it, otherwise with 0. Scales
 * keep the class's default, except the one of attention scores, which becomes 1 / sqrt(head_dim). */
static void deny_default(apr_json_text *out, size_t at, const char *key, const apr_hparams *h)
{
    static const bool nullable[APR_N_NUMBERS] = {[APR_NUMBER_AT(q_lora_rank)] = true,
                                                 [APR_NUMBER_AT(sliding_window)] = true,
                                                 [APR_NUMBER_AT(num_expert_groups)] = true,
                                                 [APR_NUMBER_AT(num_expert_groups_used)] = true,
                                                 [APR_NUMBER_AT(attn_logit_softcapping)] = true,
                                                 [APR_NUMBER_AT(final_logit_softcapping)] = true,
                                                 [APR_NUMBER_AT(attention_chunk_size)] = true,
                                                 [APR_NUMBER_AT(num_global_kv_heads)] = true};

    if (at == APR_NUMBER_AT(full_attention_interval)) return; /* layer_types replace it */
    if (nullable[at]) apr_json_null(out, key);
    else if (at == APR_NUMBER_AT(global_head_dim)) apr_json_int(out, key, h->head_dim);
    else if (apr_hparam_fields[at].is_int) apr_json_int(out, key, 0);
    else if (at == APR_NUMBER_AT(attention_multiplier) && h->head_dim > 0) apr_json_real(out, key, 1.0 / sqrt((double)h->head_dim));
}

/* Some numbers are integers for transformers, which refuses 256.0. */
static void put_real(apr_json_text *out, const char *key, double value)
{
    if (apr_is_any_of(key, APR_NAMES("query_pre_attn_scalar", "floor_scale")) && value > 0 && value < 1e15 && value == floor(value))
        apr_json_int(out, key, (int64_t)value);
    else apr_config_put_positive(out, key, value);
}

static void put_numbers(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    apr_hparams copy = *h;

    /* if experts are the only feed-forward, their width is the intermediate size */
    if (copy.intermediate_size == 0 && f->ff_is_expert) copy.intermediate_size = copy.moe_intermediate_size;
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const char *const key = apr_family_hf_key(f, (apr_field)(APR_FIRST_NUMBER + i));
        const double value = apr_hparam_number(&copy, field);
        if (key[0] == '\0' || is_written(&copy, f, i, key)) continue;
        if (value <= 0 && apr_family_default(f, field) > 0) deny_default(out, i, key, h);
        else if (!field->is_int) put_real(out, key, value);
        else if (value > 0) apr_json_int(out, key, apr_hparam_get_int(&copy, field));
    }
}

/* True: an earlier flag has the same key (ernie4_5's use_bias). */
static bool is_flag_written(const apr_family_config *f, size_t n_fields, const char *key)
{
    for (size_t i = 0; i < n_fields; i++)
        if (strcmp(apr_family_hf_key(f, (apr_field)(APR_FIRST_FLAG + i)), key) == 0) return true;
    return false;
}

/* Writes flags that are true, and those that the class would otherwise assume. The one about experts only if there are some. */
static void put_flags(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    const apr_flags always = APR_FLAG(tie_word_embeddings) | APR_FLAG(attention_bias);

    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        const char *const key = apr_family_hf_key(f, (apr_field)(APR_FIRST_FLAG + i));
        const bool is_of_experts = i == APR_FLAG_AT(norm_topk_prob), value = apr_hflag_get(h, &apr_hflag_fields[i]);
        const bool is_said = value || apr_flags_have(always | f->flags_on, i);
        if (key[0] == '\0' || is_flag_written(f, i, key)) continue;
        if (is_of_experts ? h->num_experts > 0 : is_said) apr_json_bool(out, key, value);
    }
}

/* Writes fields that only some classes need. */
static void put_choices(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    const char *const activation_key = f->activation_key != NULL ? f->activation_key : "hidden_act";

    if (activation_key[0] != '\0') apr_config_put_text(out, activation_key, f->activation);
    if (h->per_layer_input_size > 0)
        apr_json_int(out, "vocab_size_per_layer_input", h->per_layer_vocab_size > 0 ? h->per_layer_vocab_size : h->vocab_size);
    if (f->put_own != NULL) f->put_own(out, h);
}

static void put_ids(apr_json_text *out, const apr_vocab *vocab)
{
    /* a class may assume a padding token that the vocabulary does not have, and read its row of the embedding */
    if (vocab == NULL || vocab->n_tokens == 0 || vocab->pad_id < 0) apr_json_null(out, "pad_token_id");
    if (vocab == NULL || vocab->n_tokens == 0) return;
    if (vocab->bos_id >= 0) apr_json_int(out, "bos_token_id", vocab->bos_id);
    if (vocab->eos_id >= 0) apr_json_int(out, "eos_token_id", vocab->eos_id);
    if (vocab->pad_id >= 0) apr_json_int(out, "pad_token_id", vocab->pad_id);
}

char *apr_hf_config_write(const apr_hparams *h, const apr_vocab *vocab)
{
    static const apr_family_config other = {.activation = "silu"};
    apr_json_text out = {0};
    const apr_family_config *const known = apr_family_config_of(h->architecture), *const f = known != NULL ? known : &other;
    const apr_family *const family = apr_family_find(h->architecture);
    const apr_family_type *const text_only = family != NULL && family->text_only.name != NULL ? &family->text_only : NULL,
                                 *const type = text_only != NULL ? text_only : apr_family_type_of(h->architecture);
    const char *const hf_class = text_only == NULL && (h->hf_class != NULL || type == NULL) ? h->hf_class : type->hf_class;
    const char *const model_type = text_only != NULL ? text_only->name : h->architecture;

    apr_json_open(&out, NULL, '{');
    if (hf_class != NULL) {
        apr_json_open(&out, "architectures", '[');
        apr_config_put_text(&out, NULL, hf_class);
        apr_json_close(&out, ']');
    }
    if (model_type[0] != '\0') apr_config_put_text(&out, "model_type", model_type);
    put_choices(&out, h, f);
    put_numbers(&out, h, f);
    apr_config_write_rope(&out, h, f);
    apr_config_write_layers(&out, h, f);
    put_ids(&out, vocab);
    put_flags(&out, h, f);
    if (h->torch_dtype != NULL) {
        apr_config_put_text(&out, "torch_dtype", h->torch_dtype);
        apr_config_put_text(&out, "dtype", h->torch_dtype);
    }
    apr_json_bool(&out, "use_cache", true);
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, NULL);
}
