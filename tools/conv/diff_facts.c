/* diff_facts.c - what two models differ in besides tensors: hyperparameters, tokenizer, metadata, small files. */
#include "tools/cli/text.h"
#include "tools/conv/diff.h"
#include "tools/conv/kv_text.h"
#include "tools/conv/show.h"

#include <string.h>

/* --- the list --- */

static apr_status grow(apr_model_diff *diff, apr_error *err)
{
    const size_t capacity = diff->facts_capacity ? 2 * diff->facts_capacity : 32;
    apr_fact_diff *const facts = apr_arena_array(&diff->arena, capacity, sizeof *facts);
    if (facts == NULL) return apr_no_memory(err, "the differences");
    if (diff->n_facts > 0) memcpy(facts, diff->facts, diff->n_facts * sizeof *facts);
    diff->facts = facts;
    diff->facts_capacity = capacity;
    return APR_OK;
}

static apr_status add(apr_model_diff *diff, const char *topic, apr_str name, const char *a, const char *b, apr_error *err)
{
    char clean[256];

    if (diff->n_facts == diff->facts_capacity) APR_TRY(grow(diff, err));
    apr_short_text(clean, sizeof clean, name.text, name.n_bytes, 64);
    apr_fact_diff *const fact = &diff->facts[diff->n_facts++];
    *fact = (apr_fact_diff){topic, apr_arena_print(&diff->arena, "%s", clean), apr_arena_print(&diff->arena, "%s", a),
                            apr_arena_print(&diff->arena, "%s", b)};
    return fact->name != NULL && fact->a != NULL && fact->b != NULL ? APR_OK : apr_no_memory(err, "the differences");
}

static apr_status add_texts(apr_model_diff *diff, const char *topic, const char *name, const char *a, const char *b, apr_error *err)
{
    char short_a[APR_KV_TEXT], short_b[APR_KV_TEXT];

    a = a != NULL ? a : "none";
    b = b != NULL ? b : "none";
    if (strcmp(a, b) == 0) return APR_OK;
    apr_short_text(short_a, sizeof short_a, a, strlen(a), APR_VALUE_COLUMNS);
    apr_short_text(short_b, sizeof short_b, b, strlen(b), APR_VALUE_COLUMNS);
    if (strcmp(short_a, short_b) == 0) return add(diff, topic, apr_str_of(name), short_a, "begins the same", err);
    return add(diff, topic, apr_str_of(name), short_a, short_b, err);
}

static apr_status add_numbers(apr_model_diff *diff, const char *topic, const char *name, int64_t a, int64_t b, apr_error *err)
{
    char text_a[APR_SMALL_TEXT], text_b[APR_SMALL_TEXT];
    return add_texts(diff, topic, name, apr_count_text(text_a, a), apr_count_text(text_b, b), err);
}

/* Ids below 0 are none. */
static apr_status add_ids(apr_model_diff *diff, const char *name, int32_t a, int32_t b, apr_error *err)
{
    char text_a[APR_SMALL_TEXT], text_b[APR_SMALL_TEXT];

    snprintf(text_a, sizeof text_a, "%d", a);
    snprintf(text_b, sizeof text_b, "%d", b);
    return add_texts(diff, "tokenizer", name, a >= 0 ? text_a : NULL, b >= 0 ? text_b : NULL, err);
}

/* --- hyperparameters --- */

/* A value that one side does not state (0) is no difference. GGUF keeps reals as float32: they are compared as such. */
static apr_status diff_fields(apr_model_diff *diff, apr_error *err)
{
    apr_hparams a = diff->a->hparams, b = diff->b->hparams; /* copies: the table's accessors want to be able to write */

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        char text_a[APR_SMALL_TEXT], text_b[APR_SMALL_TEXT];

        if (field->is_int) {
            const int64_t x = *apr_hparam_int(&a, field), y = *apr_hparam_int(&b, field);
            if (x != 0 && y != 0) APR_TRY(add_numbers(diff, "hyperparameter", field->name, x, y, err));
            continue;
        }
        const double x = *apr_hparam_real(&a, field), y = *apr_hparam_real(&b, field);
        snprintf(text_a, sizeof text_a, "%.7g", x);
        snprintf(text_b, sizeof text_b, "%.7g", y);
        if (x != 0.0 && y != 0.0) APR_TRY(add_texts(diff, "hyperparameter", field->name, text_a, text_b, err));
    }
    return APR_OK;
}

static apr_status diff_hparams(apr_model_diff *diff, apr_error *err)
{
    static const char topic[] = "hyperparameter";
    const apr_hparams *const a = &diff->a->hparams, *const b = &diff->b->hparams;
    char text_a[APR_SMALL_TEXT], text_b[APR_SMALL_TEXT];

    APR_TRY(add_texts(diff, topic, "architecture", a->architecture, b->architecture, err));
    APR_TRY(diff_fields(diff, err));
    APR_TRY(add_texts(diff, topic, "rope_scaling", apr_rope_name(a->rope.kind), apr_rope_name(b->rope.kind), err));
    if (a->rope.kind == b->rope.kind && a->rope.kind != APR_ROPE_PLAIN) {
        snprintf(text_a, sizeof text_a, "%.7g", a->rope.factor);
        snprintf(text_b, sizeof text_b, "%.7g", b->rope.factor);
        APR_TRY(add_texts(diff, topic, "rope_scaling factor", text_a, text_b, err));
    }
    if (a->layer_kinds == NULL || b->layer_kinds == NULL || a->num_layers != b->num_layers) return APR_OK;
    for (int64_t i = 0; i < a->num_layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "kind of layer %lld", (long long)i);
        APR_TRY(add_texts(diff, topic, name, apr_layer_kind_name(a->layer_kinds[i]), apr_layer_kind_name(b->layer_kinds[i]), err));
    }
    return APR_OK;
}

/* --- tokenizer --- */

/* The first place where two lists of strings differ: "token 17", "merge 3". */
static apr_status diff_strings(apr_model_diff *diff, const char *what, const apr_str *a, const apr_str *b, size_t n, size_t per_item,
                               apr_error *err)
{
    char name[64], text_a[APR_KV_TEXT], text_b[APR_KV_TEXT];

    for (size_t i = 0; i < n; i++) {
        if (a[i].n_bytes == b[i].n_bytes && memcmp(a[i].text, b[i].text, a[i].n_bytes) == 0) continue;
        snprintf(name, sizeof name, "%s %zu", what, i / per_item);
        apr_short_text(text_a, sizeof text_a, a[i].text, a[i].n_bytes, APR_VALUE_COLUMNS);
        apr_short_text(text_b, sizeof text_b, b[i].text, b[i].n_bytes, APR_VALUE_COLUMNS);
        return add(diff, "tokenizer", apr_str_of(name), text_a, text_b, err);
    }
    return APR_OK;
}

static apr_status diff_vocab(apr_model_diff *diff, apr_error *err)
{
    static const char topic[] = "tokenizer";
    const apr_vocab *const a = &diff->a->vocab, *const b = &diff->b->vocab;
    APR_TRY(add_texts(diff, topic, "kind", apr_vocab_kind_name(a->kind), apr_vocab_kind_name(b->kind), err));
    if (a->kind == APR_VOCAB_NONE || a->kind != b->kind) return APR_OK;
    APR_TRY(add_numbers(diff, topic, "tokens", (int64_t)a->n_tokens, (int64_t)b->n_tokens, err));
    APR_TRY(add_numbers(diff, topic, "merges", (int64_t)a->n_merges, (int64_t)b->n_merges, err));
    APR_TRY(add_ids(diff, "bos id", a->bos_id, b->bos_id, err));
    APR_TRY(add_ids(diff, "eos id", a->eos_id, b->eos_id, err));
    APR_TRY(add_ids(diff, "pad id", a->pad_id, b->pad_id, err));
    APR_TRY(add_ids(diff, "unknown id", a->unk_id, b->unk_id, err));
    APR_TRY(add_texts(diff, topic, "adds bos", a->add_bos ? "yes" : "no", b->add_bos ? "yes" : "no", err));
    APR_TRY(add_texts(diff, topic, "adds eos", a->add_eos ? "yes" : "no", b->add_eos ? "yes" : "no", err));
    if (a->n_tokens == b->n_tokens) APR_TRY(diff_strings(diff, "token", a->tokens, b->tokens, a->n_tokens, 1, err));
    if (a->n_merges == b->n_merges) APR_TRY(diff_strings(diff, "merge", a->merges, b->merges, 2 * a->n_merges, 2, err));
    return add_texts(diff, topic, "chat template", a->chat_template, b->chat_template, err);
}

/* --- metadata and files --- */

static bool same_kv(const apr_kv *a, const apr_kv *b)
{
    const size_t size = apr_kv_type_bytes(a->elem_type);

    if (a->type != b->type) return false;
    if (a->type == APR_KV_STRING)
        return a->value.string.n_bytes == b->value.string.n_bytes &&
               memcmp(a->value.string.text, b->value.string.text, a->value.string.n_bytes) == 0;
    if (a->type != APR_KV_ARRAY) return a->value.bits == b->value.bits;
    if (a->elem_type != b->elem_type || a->n_elems != b->n_elems) return false;
    if (a->elem_type != APR_KV_STRING) return a->n_elems == 0 || memcmp(a->value.numbers, b->value.numbers, size * a->n_elems) == 0;
    for (uint64_t i = 0; i < a->n_elems; i++) {
        const apr_str x = a->value.strings[i], y = b->value.strings[i];
        if (x.n_bytes != y.n_bytes || memcmp(x.text, y.text, x.n_bytes) != 0) return false;
    }
    return true;
}

static const apr_kv *find_kv(const apr_kv_list *list, apr_str key)
{
    for (size_t i = 0; i < list->n_items; i++)
        if (list->items[i].key.n_bytes == key.n_bytes && memcmp(list->items[i].key.text, key.text, key.n_bytes) == 0)
            return &list->items[i];
    return NULL;
}

static apr_status diff_metadata(apr_model_diff *diff, apr_error *err)
{
    const apr_kv_list *const a = &diff->a->kv, *const b = &diff->b->kv;
    char text_a[APR_KV_TEXT], text_b[APR_KV_TEXT];

    for (size_t i = 0; i < a->n_items; i++) {
        const apr_kv *const x = &a->items[i], *const y = find_kv(b, x->key);
        if (y != NULL && same_kv(x, y)) continue;
        APR_TRY(add(diff, "metadata", x->key, apr_kv_text(x, text_a), y != NULL ? apr_kv_text(y, text_b) : "absent", err));
    }
    for (size_t i = 0; i < b->n_items; i++)
        if (find_kv(a, b->items[i].key) == NULL)
            APR_TRY(add(diff, "metadata", b->items[i].key, "absent", apr_kv_text(&b->items[i], text_b), err));
    return APR_OK;
}

static apr_status diff_files(apr_model_diff *diff, apr_error *err)
{
    char size_a[APR_SMALL_TEXT], size_b[APR_SMALL_TEXT];

    for (size_t i = 0; i < diff->a->n_attachments; i++) {
        const apr_attachment *const a = &diff->a->attachments[i], *const b = apr_model_attachment(diff->b, a->name);
        if (b != NULL && a->n_bytes == b->n_bytes && (a->n_bytes == 0 || memcmp(a->data, b->data, a->n_bytes) == 0)) continue;
        apr_size_text(size_a, a->n_bytes);
        APR_TRY(add(diff, "file", apr_str_of(a->name), size_a, b != NULL ? apr_size_text(size_b, b->n_bytes) : "absent", err));
    }
    for (size_t i = 0; i < diff->b->n_attachments; i++) {
        const apr_attachment *const b = &diff->b->attachments[i];
        if (apr_model_attachment(diff->a, b->name) == NULL)
            APR_TRY(add(diff, "file", apr_str_of(b->name), "absent", apr_size_text(size_b, b->n_bytes), err));
    }
    return APR_OK;
}

apr_status apr_diff_facts(apr_model_diff *diff, bool with_metadata, apr_error *err)
{
    const bool same_format = diff->a->format == diff->b->format && diff->a->origin.format == diff->b->origin.format;

    APR_TRY(diff_hparams(diff, err));
    APR_TRY(diff_vocab(diff, err));
    if (!with_metadata || !same_format) return APR_OK;
    APR_TRY(diff_metadata(diff, err));
    return diff_files(diff, err);
}
