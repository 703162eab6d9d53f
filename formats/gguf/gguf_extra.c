/* gguf_extra.c - hyperparameters that GGUF's own keys cannot say, under keys "aprkit.*" that our reader obeys and others
 * ignore. What they are is not listed anywhere: the keys are read back as a stranger would, and what differs is stated. */
#include "formats/gguf/gguf.h"

#include <math.h>

#define PREFIX "aprkit."

static double *rope_real(apr_rope_scaling *s, size_t i) { return (double *)(void *)((char *)s + apr_rope_fields[i].offset); }

static const char *key_of(apr_arena *arena, const char *group, const char *name)
{
    return apr_arena_print(arena, PREFIX "%s%s", group, name);
}

/* --- out of the keys --- */

static apr_status copy_text(const apr_kv_list *kv, const char *key, apr_arena *arena, const char **text, const char *where, apr_error *err)
{
    apr_str s;

    *text = NULL;
    if (!apr_kv_get_string(kv, key, &s)) return APR_OK;
    if (s.n_bytes == 0 || memchr(s.text, '\0', s.n_bytes) != NULL || !apr_str_is_utf8(s))
        return apr_fail(err, APR_E_DAMAGED, "%s: %s is no text", where, key);
    *text = apr_arena_copy(arena, s.text, s.n_bytes);
    return *text != NULL ? APR_OK : apr_no_memory(err, "a key");
}

static apr_status read_numbers(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const char *const key = key_of(arena, "", field->name);
        if (key == NULL) return apr_no_memory(err, "a key");
        if (field->is_int) apr_kv_get_int(kv, key, apr_hparam_int(h, field));
        else apr_kv_get_real(kv, key, apr_hparam_real(h, field));
    }
    return APR_OK;
}

static apr_status read_rope(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    apr_rope_scaling rope = {0};
    apr_str type;
    int kind = 0;

    if (!apr_kv_get_string(kv, PREFIX "rope.type", &type)) return APR_OK;
    while (kind < APR_N_ROPE_KINDS && !apr_str_is(type, apr_rope_names[kind])) kind++;
    if (kind == APR_N_ROPE_KINDS)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: the rotary scaling '%.*s' is not known to this program", where,
                        type.n_bytes < 40 ? (int)type.n_bytes : 40, type.text);
    rope.kind = (apr_rope_kind)kind;
    for (size_t i = 0; i < apr_n_rope_fields; i++) {
        const char *const key = key_of(arena, "rope.", apr_rope_fields[i].name);
        if (key == NULL) return apr_no_memory(err, "a key");
        apr_kv_get_real(kv, key, rope_real(&rope, i));
    }
    apr_kv_get_int(kv, PREFIX "rope.original_context", &rope.original_context);
    apr_kv_get_bool(kv, PREFIX "rope.no_truncate", &rope.no_truncate);
    h->rope = rope;
    return APR_OK;
}

/* One letter a layer. */
static apr_status read_layers(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    apr_str letters;

    if (!apr_kv_get_string(kv, PREFIX "layer_kinds", &letters)) return APR_OK;
    uint8_t *const kinds = apr_arena_alloc(arena, letters.n_bytes);
    if (kinds == NULL) return apr_no_memory(err, "the kinds of the layers");
    bool good = (uint64_t)h->num_layers == letters.n_bytes;
    for (size_t i = 0; i < letters.n_bytes && good; i++) {
        const char *const letter = memchr(apr_layer_letters, letters.text[i], APR_N_LAYER_KINDS);
        good = letter != NULL;
        if (good) kinds[i] = (uint8_t)(letter - apr_layer_letters);
    }
    if (!good) return apr_fail(err, APR_E_DAMAGED, "%s: " PREFIX "layer_kinds is not one letter for each layer", where);
    h->layer_kinds = kinds;
    return APR_OK;
}

apr_status apr_gguf_refusal_read(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    const char *refusal;
    APR_TRY(copy_text(kv, PREFIX "refusal", arena, &refusal, where, err));
    if (refusal != NULL) h->refusal = refusal;
    return APR_OK;
}

apr_status apr_gguf_extras_read(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    const char *architecture, *hf_class;

    APR_TRY(copy_text(kv, PREFIX "architecture", arena, &architecture, where, err));
    APR_TRY(copy_text(kv, PREFIX "hf_class", arena, &hf_class, where, err));
    if (architecture != NULL) h->architecture = architecture;
    if (hf_class != NULL) h->hf_class = hf_class;
    APR_TRY(apr_gguf_refusal_read(kv, h, arena, where, err));
    APR_TRY(read_numbers(kv, h, arena, err));
    APR_TRY(read_rope(kv, h, arena, where, err));
    APR_TRY(read_layers(kv, h, arena, where, err));
    apr_kv_get_bool(kv, PREFIX "norm_topk_prob", &h->norm_topk_prob);
    return APR_OK;
}

/* --- into the keys --- */

static apr_status put_real(apr_kv_list *kv, const char *key, double value, apr_error *err)
{
    apr_kv item = {.type = APR_KV_F64};

    if (key == NULL) return apr_no_memory(err, "a key");
    item.key = apr_str_of(key);
    memcpy(&item.value.bits, &value, sizeof value);
    return apr_kv_set(kv, &item, err);
}

static apr_status put_int(apr_kv_list *kv, const char *key, int64_t value, apr_error *err)
{
    return key != NULL ? apr_kv_set_int(kv, key, APR_KV_I64, value, err) : apr_no_memory(err, "a key");
}

/* A number that the model states (0 is "not said") and the keys do not give back. */
static apr_status put_numbers(apr_kv_list *kv, const apr_hparams *h, apr_hparams *seen, apr_error *err)
{
    apr_hparams stated = *h;

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        if (field->is_int) {
            const int64_t value = *apr_hparam_int(&stated, field);
            if (value == 0 || value == *apr_hparam_int(seen, field)) continue;
            APR_TRY(put_int(kv, key_of(kv->arena, "", field->name), value, err));
        } else {
            const double value = *apr_hparam_real(&stated, field);
            if (value == 0.0 || value == *apr_hparam_real(seen, field)) continue;
            APR_TRY(put_real(kv, key_of(kv->arena, "", field->name), value, err));
        }
    }
    return APR_OK;
}

/* The one scaling of llama 3's that apr_gguf_rope_from_divisors finds behind the tensor. */
static bool is_behind_divisors(const apr_rope_scaling *s)
{
    return s->kind == APR_ROPE_LLAMA3 && s->low_freq_factor == 1.0 && s->high_freq_factor == 4.0 && s->original_context == 8192;
}

static bool same_rope(apr_rope_scaling a, apr_rope_scaling b)
{
    bool same = a.kind == b.kind && a.original_context == b.original_context && a.no_truncate == b.no_truncate;
    for (size_t i = 0; i < apr_n_rope_fields; i++) same = same && *rope_real(&a, i) == *rope_real(&b, i);
    return same;
}

static apr_status put_rope(apr_kv_list *kv, const apr_rope_scaling *s, const apr_rope_scaling *seen, apr_error *err)
{
    apr_rope_scaling rope = *s;

    if (s->kind == APR_ROPE_PLAIN || is_behind_divisors(s) || same_rope(*s, *seen)) return APR_OK;
    APR_TRY(apr_kv_set_string(kv, PREFIX "rope.type", apr_str_of(apr_rope_names[s->kind]), err));
    for (size_t i = 0; i < apr_n_rope_fields; i++)
        if (*rope_real(&rope, i) != 0.0)
            APR_TRY(put_real(kv, key_of(kv->arena, "rope.", apr_rope_fields[i].name), *rope_real(&rope, i), err));
    if (s->original_context != 0) APR_TRY(put_int(kv, PREFIX "rope.original_context", s->original_context, err));
    return s->no_truncate ? apr_kv_set_bool(kv, PREFIX "rope.no_truncate", true, err) : APR_OK;
}

static apr_status put_layers(apr_kv_list *kv, const apr_hparams *h, const apr_hparams *seen, apr_error *err)
{
    const size_t n = (size_t)h->num_layers;
    bool same = seen->num_layers == h->num_layers;

    if (h->layer_kinds == NULL || n == 0) return APR_OK;
    for (size_t i = 0; i < n && same; i++) same = h->layer_kinds[i] == (seen->layer_kinds != NULL ? seen->layer_kinds[i] : APR_LAYER_FULL);
    if (same) return APR_OK;
    char *const letters = apr_arena_alloc(kv->arena, n + 1);
    if (letters == NULL) return apr_no_memory(err, "the kinds of the layers");
    for (size_t i = 0; i < n; i++) letters[i] = apr_layer_letters[h->layer_kinds[i]];
    return apr_kv_set_string(kv, PREFIX "layer_kinds", (apr_str){letters, n}, err);
}

/* Every family's own class ends so: the name follows from the architecture. */
static bool is_usual_class(const char *hf_class)
{
    static const char ending[] = "ForCausalLM";
    const size_t n = strlen(hf_class), m = sizeof ending - 1;
    return n >= m && strcmp(hf_class + n - m, ending) == 0;
}

apr_status apr_gguf_extras_write(const apr_hparams *h, size_t n_tokens, apr_kv_list *kv, apr_error *err)
{
    apr_hparams seen;

    APR_TRY(apr_gguf_hparams(kv, &seen, kv->arena, "the keys", err));
    if (seen.vocab_size == 0) seen.vocab_size = n_tokens > 0 ? (int64_t)n_tokens : h->vocab_size; /* the embedding has as many rows */
    if (apr_hparams_complete(&seen, kv->arena, "the keys", NULL) != APR_OK) seen = (apr_hparams){.architecture = ""};
    if (h->architecture != NULL && strcmp(h->architecture, seen.architecture) != 0)
        APR_TRY(apr_kv_set_string(kv, PREFIX "architecture", apr_str_of(h->architecture), err));
    if (h->hf_class != NULL && !is_usual_class(h->hf_class))
        APR_TRY(apr_kv_set_string(kv, PREFIX "hf_class", apr_str_of(h->hf_class), err));
    if (h->refusal != NULL) APR_TRY(apr_kv_set_string(kv, PREFIX "refusal", apr_str_of(h->refusal), err));
    APR_TRY(put_numbers(kv, h, &seen, err));
    APR_TRY(put_rope(kv, &h->rope, &seen.rope, err));
    APR_TRY(put_layers(kv, h, &seen, err));
    return h->norm_topk_prob != seen.norm_topk_prob ? apr_kv_set_bool(kv, PREFIX "norm_topk_prob", h->norm_topk_prob, err) : APR_OK;
}
