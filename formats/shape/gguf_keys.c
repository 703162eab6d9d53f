/* gguf_keys.c - all keys of a GGUF: the standard ones, keys "aprkit.*" for hyperparameters that those cannot express, and the tokenizer's.
 *
 * Our reader obeys aprkit.*, others ignore them. There is no fixed list: the writer reads the standard keys back and adds an aprkit.* key for
 * each value that differs. They are read last. */
#include "formats/base/text.h"
#include "formats/shape/family.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/vocab/gguf_vocab.h"

#include <math.h>
#include <string.h>

#define PREFIX "aprkit."

static int mixer_of(const apr_hparams *h, int64_t layer) { return (int)apr_layer_kind_of(h, layer); }
static int ffn_of(const apr_hparams *h, int64_t layer) { return (int)apr_ffn_kind_of(h, layer); }
static int shares_index_of(const apr_hparams *h, int64_t layer) { return apr_layer_shares_index(h, layer); }
static int no_rope_of(const apr_hparams *h, int64_t layer) { return !apr_layer_has_rope(h, layer); }

/* Texts with one letter for each layer. */
typedef struct layer_text {
    const char *name, *letters; /* indexed by the kind's number */
    size_t n_letters, offset;   /* of the const uint8_t * member in apr_hparams */
    int (*kind_of)(const apr_hparams *h, int64_t layer);
} layer_text;

static const layer_text layer_texts[] = {
    {"layer_kinds", apr_layer_letters, APR_N_LAYER_KINDS, offsetof(apr_hparams, layer_kinds), mixer_of},
    {"ffn_kinds", apr_ffn_letters, APR_N_FFN_KINDS, offsetof(apr_hparams, ffn_kinds), ffn_of},
    {"no_rope", "rn", 2, offsetof(apr_hparams, no_rope), no_rope_of},
    {"shares_index", "os", 2, offsetof(apr_hparams, shares_index), shares_index_of},
};
enum { N_LAYER_TEXTS = sizeof layer_texts / sizeof *layer_texts };

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
        return apr_fail(err, APR_E_DAMAGED, "%s: %s is not text", where, key);
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

static apr_status read_flags(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        const char *const key = key_of(arena, "", apr_hflag_fields[i].name);
        if (key == NULL) return apr_no_memory(err, "a key");
        apr_kv_get_bool(kv, key, apr_hflag(h, &apr_hflag_fields[i]));
    }
    return APR_OK;
}

/* Reads divisors of longrope. *factors is NULL if there are none. */
static apr_status read_factors(const apr_kv_list *kv, const char *key, int64_t *n, const double **factors, apr_arena *arena,
                               const char *where, apr_error *err)
{
    static const uint64_t max_factors = 1 << 16;
    const apr_kv *const item = apr_kv_find(kv, key);

    *factors = NULL;
    if (item == NULL) return APR_OK;
    if (item->type != APR_KV_ARRAY || item->elem_type != APR_KV_F64 || item->n_elems == 0 || item->n_elems > max_factors)
        return apr_fail(err, APR_E_DAMAGED, "%s: %s is not a list of factors", where, key);
    double *const list = apr_arena_array(arena, (size_t)item->n_elems, sizeof *list);
    if (list == NULL) return apr_no_memory(err, "the factors of the rotary scaling");
    for (uint64_t i = 0; i < item->n_elems; i++) list[i] = apr_kv_elem_real(item, i);
    *n = (int64_t)item->n_elems;
    *factors = list;
    return APR_OK;
}

static apr_status read_longrope(const apr_kv_list *kv, apr_rope_scaling *rope, apr_arena *arena, const char *where, apr_error *err)
{
    int64_t n_short = 0, n_long = 0;

    APR_TRY(read_factors(kv, PREFIX "rope.short_factor", &n_short, &rope->short_factor, arena, where, err));
    APR_TRY(read_factors(kv, PREFIX "rope.long_factor", &n_long, &rope->long_factor, arena, where, err));
    if (n_short != n_long)
        return apr_fail(err, APR_E_DAMAGED, "%s: " PREFIX "rope has %lld short factors and %lld long ones", where, (long long)n_short,
                        (long long)n_long);
    rope->n_factors = n_short;
    return APR_OK;
}

/* `group` is "rope." or "rope_local.". */
static apr_status read_rope(const apr_kv_list *kv, const char *group, apr_rope_scaling *scaling, apr_arena *arena, const char *where,
                            apr_error *err)
{
    const char *const type_key = key_of(arena, group, "type"), *const original_key = key_of(arena, group, "original_context"),
                      *const truncate_key = key_of(arena, group, "no_truncate");
    apr_rope_scaling rope = {0};
    apr_str type;
    int kind = 0;

    if (type_key == NULL || original_key == NULL || truncate_key == NULL) return apr_no_memory(err, "a key");
    if (!apr_kv_get_string(kv, type_key, &type)) return APR_OK;
    while (kind < APR_N_ROPE_KINDS && !apr_str_is(type, apr_rope_names[kind])) kind++;
    if (kind == APR_N_ROPE_KINDS)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: unknown rotary scaling '%.*s'", where, type.n_bytes < 40 ? (int)type.n_bytes : 40,
                        type.text);
    rope.kind = (apr_rope_kind)kind;
    for (size_t i = 0; i < apr_n_rope_fields; i++) {
        const char *const key = key_of(arena, group, apr_rope_fields[i].name);
        if (key == NULL) return apr_no_memory(err, "a key");
        apr_kv_get_real(kv, key, apr_rope_real(&rope, &apr_rope_fields[i]));
    }
    apr_kv_get_int(kv, original_key, &rope.original_context);
    apr_kv_get_bool(kv, truncate_key, &rope.no_truncate);
    *scaling = rope;
    return APR_OK;
}

/* Without such a key the kinds stay as they are. */
static apr_status read_layers(const apr_kv_list *kv, const layer_text *t, apr_hparams *h, apr_arena *arena, const char *where,
                              apr_error *err)
{
    const char *const key = key_of(arena, "", t->name);
    apr_str text;

    if (key == NULL) return apr_no_memory(err, "a key");
    if (!apr_kv_get_string(kv, key, &text)) return APR_OK;
    uint8_t *const list = apr_arena_alloc(arena, text.n_bytes);
    if (list == NULL) return apr_no_memory(err, "the kinds of the layers");
    bool good = (uint64_t)h->num_layers == text.n_bytes;
    for (size_t i = 0; i < text.n_bytes && good; i++) {
        const char *const letter = memchr(t->letters, text.text[i], t->n_letters);
        good = letter != NULL;
        if (good) list[i] = (uint8_t)(letter - t->letters);
    }
    if (!good) return apr_fail(err, APR_E_DAMAGED, "%s: %s is not one letter for each layer", where, key);
    const uint8_t *const kinds = list;
    memcpy((char *)h + t->offset, &kinds, sizeof kinds);
    return APR_OK;
}

apr_status apr_gguf_refusal_read(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    const char *refusal;
    APR_TRY(copy_text(kv, PREFIX "refusal", arena, &refusal, where, err));
    if (refusal != NULL) h->refusal = refusal;
    return APR_OK;
}

static apr_status read_aprkit_keys(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    const char *architecture, *hf_class;

    APR_TRY(copy_text(kv, PREFIX "architecture", arena, &architecture, where, err));
    APR_TRY(copy_text(kv, PREFIX "hf_class", arena, &hf_class, where, err));
    if (architecture != NULL) h->architecture = architecture;
    if (hf_class != NULL) h->hf_class = hf_class;
    APR_TRY(apr_gguf_refusal_read(kv, h, arena, where, err));
    const int64_t n_layers = h->num_layers;
    APR_TRY(read_numbers(kv, h, arena, err));
    if (h->num_layers != n_layers)
        h->layer_kinds = h->ffn_kinds = h->no_rope = h->shares_index = NULL; /* arrays with one entry per layer */
    APR_TRY(read_flags(kv, h, arena, err));
    APR_TRY(read_rope(kv, "rope.", &h->rope, arena, where, err));
    APR_TRY(read_longrope(kv, &h->rope, arena, where, err));
    APR_TRY(read_rope(kv, "rope_local.", &h->rope_local, arena, where, err));
    for (size_t i = 0; i < N_LAYER_TEXTS; i++) APR_TRY(read_layers(kv, &layer_texts[i], h, arena, where, err));
    return APR_OK;
}

apr_status apr_gguf_hparams(const apr_kv_list *kv, apr_hparams *h, apr_arena *arena, const char *where, apr_error *err)
{
    APR_TRY(apr_gguf_standard_hparams(kv, h, arena, where, err));
    return h->architecture[0] != '\0' ? read_aprkit_keys(kv, h, arena, where, err) : APR_OK;
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

/* Writes the numbers that the keys do not give back. 0 means unset: it is written only if readers assume another value. */
static apr_status put_numbers(apr_kv_list *kv, const apr_hparams *h, const apr_hparams *seen, apr_error *err)
{
    static const apr_hparams nothing = {0};
    const apr_hparams *const assumes = apr_family_gguf_of(apr_family_find(h->architecture))->assumes, *const supposed = assumes != NULL
                                                                                                                            ? assumes
                                                                                                                            : &nothing;

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const double value = apr_hparam_number(h, field);
        if (value == apr_hparam_number(seen, field) || (value == 0 && apr_hparam_number(supposed, field) == 0)) continue;
        const char *const key = key_of(kv->arena, "", field->name);
        APR_TRY(field->is_int ? put_int(kv, key, apr_hparam_get_int(h, field), err) : put_real(kv, key, value, err));
    }
    return APR_OK;
}

static apr_status put_flags(apr_kv_list *kv, const apr_hparams *h, apr_hparams *seen, apr_error *err)
{
    seen->tie_word_embeddings = h->tie_word_embeddings; /* readers see it by the tensors */
    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        const apr_hflag_field *const flag = &apr_hflag_fields[i];
        if (apr_hflag_get(h, flag) == apr_hflag_get(seen, flag)) continue;
        const char *const key = key_of(kv->arena, "", flag->name);
        if (key == NULL) return apr_no_memory(err, "a key");
        APR_TRY(apr_kv_set_bool(kv, key, apr_hflag_get(h, flag), err));
    }
    return APR_OK;
}

/* The llama 3 scaling that apr_gguf_rope_read recovers from rope_freqs.weight. */
static bool is_given_by_divisors(const apr_rope_scaling *s)
{
    return s->kind == APR_ROPE_LLAMA3 && s->low_freq_factor == 1.0 && s->high_freq_factor == 4.0 && s->original_context == 8192;
}

static apr_status put_rope(apr_kv_list *kv, const char *group, const apr_rope_scaling *s, const apr_rope_scaling *seen, apr_error *err)
{
    const char *const type_key = key_of(kv->arena, group, "type"), *const truncate_key = key_of(kv->arena, group, "no_truncate");

    if (type_key == NULL || truncate_key == NULL) return apr_no_memory(err, "a key");
    if (is_given_by_divisors(s) || apr_rope_is_same(s, seen)) return APR_OK;
    APR_TRY(apr_kv_set_string(kv, type_key, apr_str_of(apr_rope_names[s->kind]), err));
    for (size_t i = 0; i < apr_n_rope_fields; i++)
        if (apr_rope_number(s, &apr_rope_fields[i]) != 0.0)
            APR_TRY(put_real(kv, key_of(kv->arena, group, apr_rope_fields[i].name), apr_rope_number(s, &apr_rope_fields[i]), err));
    if (s->original_context != 0) APR_TRY(put_int(kv, key_of(kv->arena, group, "original_context"), s->original_context, err));
    return s->no_truncate ? apr_kv_set_bool(kv, truncate_key, true, err) : APR_OK;
}

static apr_status put_factors(apr_kv_list *kv, const char *key, const double *factors, int64_t n, apr_error *err)
{
    uint8_t *const numbers = apr_arena_array(kv->arena, (size_t)n, sizeof *factors);

    if (numbers == NULL) return apr_no_memory(err, "the factors of the rotary scaling");
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &factors[i], sizeof bits);
        apr_store_le32(numbers + 8 * i, (uint32_t)bits);
        apr_store_le32(numbers + 8 * i + 4, (uint32_t)(bits >> 32));
    }
    const apr_kv item = {
        .key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = APR_KV_F64, .n_elems = (uint64_t)n, .value.numbers = numbers};
    return apr_kv_set(kv, &item, err);
}

/* GGUF has these factors as f32 tensors. The keys keep the exact values, and are there if only the header is read. */
static apr_status put_longrope(apr_kv_list *kv, const apr_rope_scaling *s, apr_error *err)
{
    if (s->n_factors <= 0 || s->short_factor == NULL || s->long_factor == NULL) return APR_OK;
    APR_TRY(put_factors(kv, PREFIX "rope.short_factor", s->short_factor, s->n_factors, err));
    return put_factors(kv, PREFIX "rope.long_factor", s->long_factor, s->n_factors, err);
}

static apr_status put_layers(apr_kv_list *kv, const layer_text *t, const apr_hparams *h, const apr_hparams *seen, apr_error *err)
{
    const char *const key = key_of(kv->arena, "", t->name);
    const size_t n = (size_t)h->num_layers;
    bool same = seen->num_layers == h->num_layers;

    for (int64_t i = 0; i < h->num_layers && same; i++) same = t->kind_of(h, i) == t->kind_of(seen, i);
    if (same || n == 0) return APR_OK;
    char *const text = apr_arena_alloc(kv->arena, n + 1);
    if (text == NULL || key == NULL) return apr_no_memory(err, "the kinds of the layers");
    for (size_t i = 0; i < n; i++) text[i] = t->letters[t->kind_of(h, (int64_t)i)];
    return apr_kv_set_string(kv, key, (apr_str){text, n}, err);
}

/* The usual class of every architecture ends in "ForCausalLM" and follows from the architecture, so it needs no key. */
static bool is_usual_class(const char *hf_class) { return apr_ends_with(hf_class, "ForCausalLM"); }

static apr_status write_aprkit_keys(const apr_hparams *h, size_t n_tokens, apr_kv_list *kv, apr_error *err)
{
    apr_hparams seen;

    APR_TRY(apr_gguf_hparams(kv, &seen, kv->arena, "the keys", err));
    if (seen.vocab_size == 0) seen.vocab_size = n_tokens > 0 ? (int64_t)n_tokens : h->vocab_size; /* of tokenizer or embedding */
    if (apr_hparams_complete(&seen, kv->arena, "the keys", NULL) != APR_OK) seen = (apr_hparams){.architecture = ""};
    if (h->architecture != NULL && strcmp(h->architecture, seen.architecture) != 0)
        APR_TRY(apr_kv_set_string(kv, PREFIX "architecture", apr_str_of(h->architecture), err));
    if (h->hf_class != NULL && !is_usual_class(h->hf_class))
        APR_TRY(apr_kv_set_string(kv, PREFIX "hf_class", apr_str_of(h->hf_class), err));
    if (h->refusal != NULL) APR_TRY(apr_kv_set_string(kv, PREFIX "refusal", apr_str_of(h->refusal), err));
    APR_TRY(put_numbers(kv, h, &seen, err));
    APR_TRY(put_flags(kv, h, &seen, err));
    APR_TRY(put_rope(kv, "rope.", &h->rope, &seen.rope, err));
    APR_TRY(put_longrope(kv, &h->rope, err));
    APR_TRY(put_rope(kv, "rope_local.", &h->rope_local, &seen.rope_local, err));
    for (size_t i = 0; i < N_LAYER_TEXTS; i++) APR_TRY(put_layers(kv, &layer_texts[i], h, &seen, err));
    return APR_OK;
}

apr_status apr_gguf_keys(const apr_hparams *h, const apr_vocab *vocab, const char *name, int64_t file_type, apr_kv_list *kv, apr_error *err)
{
    const bool lacks_vocab = vocab->kind == APR_VOCAB_NONE || vocab->n_tokens == 0;

    APR_TRY(apr_gguf_standard_keys(h, lacks_vocab, name, file_type, kv, err));
    if (apr_gguf_architecture(h)[0] != '\0') APR_TRY(write_aprkit_keys(h, lacks_vocab ? 0 : vocab->n_tokens, kv, err));
    return apr_gguf_vocab_keys(vocab, kv, err);
}
