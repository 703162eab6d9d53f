/* hf_config_rope.c - the rotary embeddings of a config.json, read and written: rope_theta next to rope_scaling (transformers 4; version 5
 * still prefers it), or rope_parameters (transformers 5), one object for all layers or one for each kind of layer. */
#include "formats/shape/hf_config.h"
#include "formats/shape/hf_config_values.h"

#include <math.h>
#include <string.h>

typedef apr_config_reading reading;

/* The objects to read; NULL: not there. */
typedef struct rope_sources {
    const cJSON *scaling, *parameters; /* for all layers, or for full ones */
    const cJSON *rope;                 /* the one of the two that counts */
    const cJSON *local;                /* for sliding layers, if they have their own */
} rope_sources;

/* "rope_type" or, in older files, "type". For text "mrope" equals plain rope. Old names of longrope are "su" and, in phi3's files with
 * short_factor, "yarn". NULL: none. */
static const char *rope_name(const cJSON *rope)
{
    const char *name = apr_json_get_string(rope, "rope_type");
    if (name == NULL) name = apr_json_get_string(rope, "type");
    if (name == NULL) return NULL;
    if (strcmp(name, "mrope") == 0) return apr_rope_names[APR_ROPE_PLAIN];
    const bool is_long = strcmp(name, "su") == 0 || (strcmp(name, "yarn") == 0 && apr_json_get(rope, "short_factor") != NULL);
    return is_long ? apr_rope_names[APR_ROPE_LONGROPE] : name;
}

static apr_status read_kind(const reading *r, const cJSON *rope, apr_rope_kind *kind)
{
    const char *const name = rope_name(rope);

    if (name == NULL) return APR_OK;
    for (int i = 0; i < APR_N_ROPE_KINDS; i++)
        if (strcmp(apr_rope_names[i], name) == 0) {
            *kind = (apr_rope_kind)i;
            return APR_OK;
        }
    return apr_config_refuse(r, "its rope_type is \"%.40s\", which is not done", name);
}

/* As in transformers' yarn: 0.1 * scale * ln(factor) + 1. */
static double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * log(factor) + 1.0; }

/* Reads a list of divisors, one for each frequency. */
static apr_status read_factors(const reading *r, const cJSON *rope, const char *key, const double **factors, int64_t *n)
{
    const cJSON *const list = apr_json_get(rope, key), *item;

    if (!cJSON_IsArray(list)) return apr_fail(r->err, APR_E_DAMAGED, "%s: rope scaling \"longrope\" needs a list \"%s\"", r->where, key);
    double *const values = apr_arena_array(r->arena, (size_t)cJSON_GetArraySize(list) + 1, sizeof *values);
    if (values == NULL) return apr_no_memory(r->err, "a config");
    *n = 0;
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble) || item->valuedouble <= 0)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: number %lld of \"%s\" is not above 0", r->where, (long long)*n, key);
        values[(*n)++] = item->valuedouble;
    }
    *factors = values;
    return APR_OK;
}

static apr_status read_long_factors(const reading *r, const cJSON *rope, apr_rope_scaling *s)
{
    int64_t n_long = 0;

    APR_TRY(read_factors(r, rope, "short_factor", &s->short_factor, &s->n_factors));
    APR_TRY(read_factors(r, rope, "long_factor", &s->long_factor, &n_long));
    if (n_long != s->n_factors)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"short_factor\" has %lld numbers and \"long_factor\" %lld", r->where,
                        (long long)s->n_factors, (long long)n_long);
    if (s->original_context == 0 && r->h->max_position_embeddings > 0) s->original_context = r->h->max_position_embeddings;
    return APR_OK;
}

static apr_status read_original_context(const reading *r, const cJSON *rope, apr_rope_scaling *s)
{
    static const char key[] = "original_max_position_embeddings";
    double original = 0;

    APR_TRY(apr_config_real(r, apr_json_get(rope, key), key, &original));
    if (original == 0) APR_TRY(apr_config_real(r, apr_config_find(r, key), key, &original));
    if (!(original >= 0 && original < 0x1p40)) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is %g", r->where, key, original);
    s->original_context = (int64_t)original;
    return APR_OK;
}

/* Checks the numbers that a kind needs. */
static apr_status check_numbers(const reading *r, const apr_rope_scaling *s)
{
    const bool needs_factor = s->kind != APR_ROPE_LONGROPE && s->kind != APR_ROPE_PROPORTIONAL && !(s->alpha > 0);

    if (needs_factor && !(s->factor > 0))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: rope scaling \"%s\" needs a factor above 0", r->where, apr_rope_names[s->kind]);
    if (s->kind == APR_ROPE_LLAMA3 && !(s->low_freq_factor > 0 && s->high_freq_factor >= s->low_freq_factor && s->original_context > 0))
        return apr_fail(r->err, APR_E_DAMAGED,
                        "%s: rope scaling \"llama3\" needs 0 < low_freq_factor <= high_freq_factor and original_max_position_embeddings",
                        r->where);
    return APR_OK;
}

/* Rotates the whole head unless partial_rotary_factor is stated. No known model has another factor than 1. */
static apr_status settle_proportional(const reading *r, const cJSON *rope, apr_rope_scaling *s)
{
    const double factor = s->factor;

    if (apr_json_get(rope, "partial_rotary_factor") == NULL) s->partial_rotary_factor = 1;
    s->factor = 0;
    return factor == 0 || factor == 1 ? APR_OK : apr_config_refuse(r, "its rope scaling \"proportional\" has the factor %g", factor);
}

static apr_status read_scaling(const reading *r, const cJSON *rope, apr_rope_scaling *s)
{
    bool truncate = true;

    APR_TRY(read_kind(r, rope, &s->kind));
    if (s->kind == APR_ROPE_PLAIN) return APR_OK;
    for (size_t i = 0; i < apr_n_rope_fields; i++) {
        const apr_rope_field *const field = &apr_rope_fields[i];
        const bool is_part = strcmp(field->name, "partial_rotary_factor") == 0; /* for other kinds it sets rotary_dim */
        if (is_part && s->kind != APR_ROPE_PROPORTIONAL) continue;
        APR_TRY(apr_config_real(r, apr_json_get(rope, field->name), field->name, apr_rope_real(s, field)));
    }
    APR_TRY(read_original_context(r, rope, s));
    APR_TRY(check_numbers(r, s));
    if (s->kind == APR_ROPE_LONGROPE) APR_TRY(read_long_factors(r, rope, s));
    if (s->kind == APR_ROPE_PROPORTIONAL) APR_TRY(settle_proportional(r, rope, s));
    if (s->kind == APR_ROPE_YARN && s->attention_factor == 0 && s->mscale != 0 && s->mscale_all_dim != 0)
        s->attention_factor = yarn_magnitude(s->factor, s->mscale) / yarn_magnitude(s->factor, s->mscale_all_dim);
    apr_json_get_bool(rope, "truncate", &truncate);
    s->no_truncate = s->kind == APR_ROPE_YARN && !truncate;
    return APR_OK;
}

/* If a file has both styles, their common members must agree. */
static apr_status compare_styles(const reading *r, const cJSON *scaling, const cJSON *parameters)
{
    const char *const a = rope_name(scaling), *const b = rope_name(parameters);
    const cJSON *item;

    if (scaling == NULL || parameters == NULL) return APR_OK;
    if (a != NULL && b != NULL && strcmp(a, b) != 0)
        return apr_config_refuse(r, "its rope_scaling is \"%.40s\", but its rope_parameters are \"%.40s\"", a, b);
    cJSON_ArrayForEach(item, scaling)
    {
        const cJSON *const other = apr_json_get(parameters, item->string);
        if (cJSON_IsNumber(item) && cJSON_IsNumber(other) && item->valuedouble != other->valuedouble)
            return apr_config_refuse(r, "its rope_scaling and rope_parameters differ in \"%.40s\"", item->string);
    }
    return APR_OK;
}

static const cJSON *object(const cJSON *item) { return cJSON_IsObject(item) ? item : NULL; }

/* With one object per layer type, the one of full attention counts for all layers except sliding ones with their own object. */
static apr_status find_sources(const reading *r, rope_sources *s)
{
    const cJSON *const all = object(apr_config_find(r, "rope_parameters"));
    const cJSON *const full = object(apr_json_get(all, "full_attention")), *const sliding = object(apr_json_get(all, "sliding_attention"));

    s->scaling = object(apr_config_find(r, "rope_scaling"));
    s->parameters = full != NULL ? full : sliding != NULL ? sliding : all;
    s->rope = s->scaling != NULL ? s->scaling : s->parameters;
    s->local = full != NULL ? sliding : NULL;
    APR_TRY(compare_styles(r, s->scaling, s->parameters));
    if (full == NULL || sliding == NULL || cJSON_Compare(full, sliding, true) || (r->spec != NULL && r->spec->local_rope)) return APR_OK;
    return apr_config_refuse(r, "its rope_parameters differ between full and sliding attention");
}

/* Sets rotary_dim by the rotated part of the head. MiniMax states rotary_dim itself; latent attention (MLA) has its own rule. */
static apr_status read_rotary_dim(const reading *r, const cJSON *rope)
{
    apr_hparams *const h = r->h;
    double part = 0;

    if (h->rope.kind == APR_ROPE_PROPORTIONAL || (h->kv_lora_rank > 0 && h->rotary_dim > 0)) return APR_OK;
    APR_TRY(apr_config_real(r, apr_json_get(rope, "partial_rotary_factor"), "partial_rotary_factor", &part));
    if (part == 0) APR_TRY(apr_config_real(r, apr_config_find(r, "partial_rotary_factor"), "partial_rotary_factor", &part));
    if (part == 0 && r->spec != NULL && apr_is_any_of("rotary_pct", r->spec->computes))
        APR_TRY(apr_config_real(r, apr_config_find(r, "rotary_pct"), "rotary_pct", &part));
    if (part == 0 && r->spec != NULL) part = r->spec->partial_rotary_factor;
    if (part == 0) return APR_OK;

    const int64_t head_dim = h->head_dim > 0 ? h->head_dim : h->num_heads > 0 ? h->hidden_size / h->num_heads : 0;
    if (!(part > 0 && part <= 1))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"partial_rotary_factor\" is %g, not between 0 and 1", r->where, part);
    if (head_dim > 0 && head_dim < (int64_t)1 << 40) h->rotary_dim = (int64_t)((double)head_dim * part);
    return APR_OK;
}

/* ministral3 and mistral4 state the temperature scaling of queries here. */
static apr_status read_temperature(const reading *r, const cJSON *rope)
{
    static const char key[] = "llama_4_scaling_beta";

    if (r->spec == NULL || !apr_is_any_of(key, r->spec->computes) || apr_json_get(rope, key) == NULL) return APR_OK;
    APR_TRY(apr_config_real(r, apr_json_get(rope, key), key, &r->h->attn_temperature));
    if (r->h->attn_temperature != 0) r->h->attn_temperature_length = (double)r->h->rope.original_context;
    return APR_OK;
}

/* Reads the rope of sliding layers. If it equals that of the others, it is dropped. */
static apr_status read_local(const reading *r, const cJSON *local)
{
    apr_hparams *const h = r->h;

    if (r->spec == NULL || !r->spec->local_rope) return APR_OK;
    if (local == NULL && r->spec->scales_full_only) h->rope_theta_local = h->rope_theta;
    if (local != NULL) {
        h->rope_theta_local = r->spec->defaults.rope_theta_local;
        APR_TRY(apr_config_real(r, apr_json_get(local, "rope_theta"), "rope_theta", &h->rope_theta_local));
        APR_TRY(read_scaling(r, local, &h->rope_local));
    }
    if (h->rope_theta_local != h->rope_theta || !apr_rope_is_same(&h->rope, &h->rope_local) || h->rope.n_factors != 0 ||
        h->rope_local.n_factors != 0)
        return APR_OK;
    h->rope_theta_local = 0;
    h->rope_local = (apr_rope_scaling){0};
    return APR_OK;
}

/* Reads M-RoPE's sections, which are written to GGUF. The positions of text are the same in all of them. */
static void read_sections(const reading *r, const cJSON *rope)
{
    const cJSON *const list = apr_json_get(rope, "mrope_section");
    int64_t sections[3];

    const bool is_written = r->spec != NULL && apr_is_any_of("mrope_section", r->spec->computes);
    if (!is_written || !cJSON_IsArray(list) || cJSON_GetArraySize(list) < 3) return;
    for (int i = 0; i < 3; i++)
        if (!apr_json_as_int(cJSON_GetArrayItem(list, i), &sections[i]) || sections[i] < 0 || sections[i] > INT32_MAX) return;
    r->h->mrope_time = sections[0];
    r->h->mrope_height = sections[1];
    r->h->mrope_width = sections[2];
}

static void take_class_rope(const reading *r, const apr_family_rope *rope)
{
    r->h->rope = rope->scaling;
    if (rope->theta > 0) r->h->rope_theta = rope->theta;
    r->h->attn_temperature = rope->temperature;
    if (rope->temperature > 0) r->h->attn_temperature_length = (double)rope->scaling.original_context;
}

apr_status apr_config_read_rope(const reading *r)
{
    apr_hparams *const h = r->h;
    rope_sources s;

    APR_TRY(find_sources(r, &s));
    APR_TRY(apr_config_real(r, apr_json_get(s.parameters, "rope_theta"), "rope_theta", &h->rope_theta));
    APR_TRY(apr_config_real(r, apr_json_get(s.rope, "rope_theta"), "rope_theta", &h->rope_theta));
    if (h->rope_theta == 0 && r->spec != NULL) h->rope_theta = r->spec->rope_theta;
    if (s.rope != NULL) APR_TRY(read_scaling(r, s.rope, &h->rope));
    else if (r->spec != NULL && r->spec->rope != NULL && h->hidden_size > 0) take_class_rope(r, r->spec->rope);
    read_sections(r, s.rope);
    APR_TRY(read_temperature(r, s.rope));
    APR_TRY(read_local(r, s.local));
    return read_rotary_dim(r, s.rope);
}

/* --- writing --- */

/* Readers multiply it by head_dim and truncate. If that would give one too few, the next larger number is written. */
static double rotary_part(const apr_hparams *h)
{
    const double part = (double)h->rotary_dim / (double)h->head_dim;
    return (int64_t)(part * (double)h->head_dim) == h->rotary_dim ? part : nextafter(part, 2.0);
}

/* True if only part of the head is rotated, or the class would assume so. Most classes of latent attention need no such field. */
static bool states_part(const apr_hparams *h, const apr_family_config *f)
{
    const bool knows_part = h->kv_lora_rank > 0 && !f->latent_part;
    const bool is_part = h->rotary_dim > 0 && h->head_dim > 0 && (h->rotary_dim < h->head_dim || f->partial_rotary_factor > 0);
    return is_part && !knows_part && h->rope.kind != APR_ROPE_PROPORTIONAL;
}

static void put_scaling(apr_json_text *out, const apr_rope_scaling *s)
{
    apr_config_put_text(out, "rope_type", apr_rope_names[s->kind]);
    if (s->kind == APR_ROPE_PLAIN) return;
    for (size_t i = 0; i < apr_n_rope_fields; i++)
        apr_config_put_positive(out, apr_rope_fields[i].name, apr_rope_number(s, &apr_rope_fields[i]));
    if (s->original_context > 0) apr_json_int(out, "original_max_position_embeddings", s->original_context);
    if (s->no_truncate) apr_json_bool(out, "truncate", false);
    if (s->n_factors == 0 || s->short_factor == NULL || s->long_factor == NULL) return;
    apr_json_reals(out, "short_factor", s->short_factor, (size_t)s->n_factors);
    apr_json_reals(out, "long_factor", s->long_factor, (size_t)s->n_factors);
}

/* Both styles have the same object; with_base: transformers 5 has rope_theta inside it, transformers 4 next to it. */
static void put_rope_object(apr_json_text *out, const char *key, const apr_hparams *h, const apr_family_config *f, bool with_base)
{
    apr_json_open(out, key, '{');
    put_scaling(out, &h->rope);
    if (with_base) apr_config_put_positive(out, "rope_theta", h->rope_theta);
    if (with_base && states_part(h, f)) apr_json_real(out, "partial_rotary_factor", rotary_part(h));
    if (apr_is_any_of("llama_4_scaling_beta", f->computes)) apr_config_put_positive(out, "llama_4_scaling_beta", h->attn_temperature);
    apr_json_close(out, '}');
}

/* Writes separate objects for full and sliding layers. */
static void put_two_ropes(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    const bool differs = h->rope_theta_local > 0;

    apr_json_open(out, "rope_parameters", '{');
    put_rope_object(out, "full_attention", h, f, true);
    apr_json_open(out, "sliding_attention", '{');
    put_scaling(out, differs ? &h->rope_local : &h->rope);
    apr_config_put_positive(out, "rope_theta", differs ? h->rope_theta_local : h->rope_theta);
    apr_json_close(out, '}');
    apr_json_close(out, '}');
}

void apr_config_write_rope(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    if (f->positions == APR_POSITIONS_LEARNED) return;
    /* Only transformers 5 has the proportional kind, and objects per layer type. It reads a null next to rope_parameters as an empty
     * object, so null is written only if transformers 4 would assume a scaling. */
    if (h->rope.kind != APR_ROPE_PLAIN && h->rope.kind != APR_ROPE_PROPORTIONAL) put_rope_object(out, "rope_scaling", h, f, false);
    else if (f->rope != NULL && !f->local_rope) apr_json_null(out, "rope_scaling");
    if (f->local_rope) put_two_ropes(out, h, f);
    else put_rope_object(out, "rope_parameters", h, f, true);
    if (states_part(h, f)) apr_json_real(out, "partial_rotary_factor", rotary_part(h));
    if (states_part(h, f) && apr_is_any_of("rotary_pct", f->computes)) apr_json_real(out, "rotary_pct", rotary_part(h));
    if (h->rope.n_factors > 0 && h->rope.original_context > 0) /* longrope's classes look for it here */
        apr_json_int(out, "original_max_position_embeddings", h->rope.original_context);
}
