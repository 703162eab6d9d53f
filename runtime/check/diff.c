/* diff.c - compares two models: what is stated about them (hyperparameters, vocabulary, metadata, files), then each tensor. */
#include "runtime/check/diff.h"

#include "formats/base/threads.h"
#include "formats/tensor/library_type.h"
#include "formats/tensor/metadata.h"
#include "kernels/rows.h"
#include "runtime/check/row_blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- facts --- */

/* --- values --- */

static apr_fact_value number_of(apr_fact_kind kind, int64_t number) { return (apr_fact_value){.kind = kind, .number = number}; }
static apr_fact_value bool_of(bool value) { return number_of(APR_FACT_BOOL, value); }
static apr_fact_value real_of(double value) { return (apr_fact_value){.kind = APR_FACT_REAL, .real = value}; }
static apr_fact_value bytes_of(apr_str text) { return (apr_fact_value){.kind = APR_FACT_TEXT, .text = text}; }
static apr_fact_value text_of(const char *text) { return text != NULL ? bytes_of(apr_str_of(text)) : (apr_fact_value){0}; }
static apr_fact_value kv_of(const apr_kv *kv) { return (apr_fact_value){.kind = kv != NULL ? APR_FACT_KV : APR_FACT_NONE, .kv = kv}; }
/* An id below 0 means that there is none. */
static apr_fact_value id_of(int32_t id) { return id >= 0 ? number_of(APR_FACT_ID, id) : (apr_fact_value){0}; }
static apr_fact_value file_of(const apr_attachment *file)
{
    return file != NULL ? number_of(APR_FACT_BYTES, (int64_t)file->n_bytes) : (apr_fact_value){0};
}

static bool same_str(apr_str a, apr_str b) { return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.text, b.text, a.n_bytes) == 0); }

/* GGUF stores reals as float32, so seven significant digits are compared. */
static bool same_real(double a, double b)
{
    char text_a[32], text_b[32];

    snprintf(text_a, sizeof text_a, "%.7g", a);
    snprintf(text_b, sizeof text_b, "%.7g", b);
    return strcmp(text_a, text_b) == 0;
}

/* Values of different kinds are not equal. Metadata is compared by same_kv instead. */
static bool same_value(const apr_fact_value *a, const apr_fact_value *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == APR_FACT_REAL) return same_real(a->real, b->real);
    return a->kind == APR_FACT_TEXT ? same_str(a->text, b->text) : a->number == b->number;
}

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

static apr_status add(apr_model_diff *diff, apr_diff_topic topic, apr_str name, apr_fact_value a, apr_fact_value b, apr_error *err)
{
    if (diff->n_facts == diff->facts_capacity) APR_TRY(grow(diff, err));
    diff->facts[diff->n_facts++] = (apr_fact_diff){topic, name, a, b};
    return APR_OK;
}

/* Adds an entry if the values differ. */
static apr_status compare(apr_model_diff *diff, apr_diff_topic topic, const char *name, apr_fact_value a, apr_fact_value b, apr_error *err)
{
    return same_value(&a, &b) ? APR_OK : add(diff, topic, apr_str_of(name), a, b, err);
}

/* Adds an entry with a numbered name: "token 17". */
static apr_status add_numbered(apr_model_diff *diff, apr_diff_topic topic, const char *what, size_t number, apr_fact_value a,
                               apr_fact_value b, apr_error *err)
{
    const char *const name = apr_arena_print(&diff->arena, "%s %zu", what, number);
    return name != NULL ? add(diff, topic, apr_str_of(name), a, b, err) : apr_no_memory(err, "the differences");
}

/* --- hyperparameters --- */

/* A value that one side does not state (0) is not a difference. */
static apr_status diff_fields(apr_model_diff *diff, apr_error *err)
{
    const apr_hparams *const a = &diff->a->hparams, *const b = &diff->b->hparams;

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const int64_t n = apr_hparam_get_int(a, field), m = apr_hparam_get_int(b, field);
        const double x = apr_hparam_get_real(a, field), y = apr_hparam_get_real(b, field);
        if (n != 0 && m != 0)
            APR_TRY(compare(diff, APR_DIFF_HYPERPARAMETER, field->name, number_of(APR_FACT_COUNT, n), number_of(APR_FACT_COUNT, m), err));
        if (x != 0.0 && y != 0.0) APR_TRY(compare(diff, APR_DIFF_HYPERPARAMETER, field->name, real_of(x), real_of(y), err));
    }
    return APR_OK;
}

/* The values of one layer's properties. */
static apr_fact_value mixer_of(uint8_t kind) { return number_of(APR_FACT_LAYER, kind); }
static apr_fact_value positions_of(uint8_t has_none) { return text_of(has_none ? "none" : "rotary"); }
static apr_fact_value index_of(uint8_t shares) { return text_of(shares ? "shared" : "own"); }
static apr_fact_value ffn_of(uint8_t kind)
{
    static const char *const names[] = {[APR_FFN_DENSE] = "dense", [APR_FFN_EXPERTS] = "experts", [APR_FFN_NONE] = "none"};
    return text_of(names[kind]);
}

static apr_status diff_layers(apr_model_diff *diff, apr_error *err)
{
    const apr_hparams *const a = &diff->a->hparams, *const b = &diff->b->hparams;
    const struct {
        const uint8_t *a, *b;
        const char *what;
        apr_fact_value (*of)(uint8_t kind);
    } aspects[] = {{a->layer_kinds, b->layer_kinds, "kind of layer", mixer_of},
                   {a->ffn_kinds, b->ffn_kinds, "feed-forward of layer", ffn_of},
                   {a->no_rope, b->no_rope, "positions of layer", positions_of},
                   {a->shares_index, b->shares_index, "index of layer", index_of}};

    for (size_t k = 0; k < sizeof aspects / sizeof *aspects; k++) {
        const uint8_t *const x = aspects[k].a, *const y = aspects[k].b;
        if (x == NULL || y == NULL || a->num_layers != b->num_layers) continue;
        for (int64_t i = 0; i < a->num_layers; i++)
            if (x[i] != y[i])
                APR_TRY(
                    add_numbered(diff, APR_DIFF_HYPERPARAMETER, aspects[k].what, (size_t)i, aspects[k].of(x[i]), aspects[k].of(y[i]), err));
    }
    return APR_OK;
}

/* Flags are compared only within one format: other formats leave some of them to the reader. */
static apr_status diff_flags(apr_model_diff *diff, apr_error *err)
{
    const apr_hparams *const a = &diff->a->hparams, *const b = &diff->b->hparams;

    if (diff->a->format != diff->b->format || diff->a->origin.format != diff->b->origin.format) return APR_OK;
    for (size_t i = 0; i < apr_n_hflag_fields; i++)
        APR_TRY(compare(diff, APR_DIFF_HYPERPARAMETER, apr_hflag_fields[i].name, bool_of(apr_hflag_get(a, &apr_hflag_fields[i])),
                        bool_of(apr_hflag_get(b, &apr_hflag_fields[i])), err));
    return APR_OK;
}

static double rope_real(const apr_rope_scaling *s, size_t offset)
{
    double value;
    memcpy(&value, (const char *)s + offset, sizeof value);
    return value;
}

/* `name` is "rope_scaling", or that of sliding layers. A number that one side does not state (0) is not a difference. */
static apr_status diff_rope(apr_model_diff *diff, const char *name, const apr_rope_scaling *a, const apr_rope_scaling *b, apr_error *err)
{
    APR_TRY(compare(diff, APR_DIFF_HYPERPARAMETER, name, number_of(APR_FACT_ROPE, a->kind), number_of(APR_FACT_ROPE, b->kind), err));
    for (size_t i = 0; i < apr_n_rope_fields && a->kind == b->kind && a->kind != APR_ROPE_PLAIN; i++) {
        const double x = rope_real(a, apr_rope_fields[i].offset), y = rope_real(b, apr_rope_fields[i].offset);
        if (x == 0.0 || y == 0.0 || same_real(x, y)) continue;
        const char *const field = apr_arena_print(&diff->arena, "%s %s", name, apr_rope_fields[i].name);
        if (field == NULL) return apr_no_memory(err, "the differences");
        APR_TRY(add(diff, APR_DIFF_HYPERPARAMETER, apr_str_of(field), real_of(x), real_of(y), err));
    }
    for (int64_t i = 0; a->n_factors == b->n_factors && i < a->n_factors; i++)
        if (!same_real(a->short_factor[i], b->short_factor[i]) || !same_real(a->long_factor[i], b->long_factor[i])) {
            const bool is_short = !same_real(a->short_factor[i], b->short_factor[i]);
            const apr_fact_value x = real_of(is_short ? a->short_factor[i] : a->long_factor[i]);
            const apr_fact_value y = real_of(is_short ? b->short_factor[i] : b->long_factor[i]);
            return add_numbered(diff, APR_DIFF_HYPERPARAMETER, is_short ? "short rotary factor" : "long rotary factor", (size_t)i, x, y,
                                err); /* only the first one */
        }
    return APR_OK;
}

static apr_status diff_hparams(apr_model_diff *diff, apr_error *err)
{
    const apr_hparams *const a = &diff->a->hparams, *const b = &diff->b->hparams;

    APR_TRY(compare(diff, APR_DIFF_HYPERPARAMETER, "architecture", text_of(a->architecture), text_of(b->architecture), err));
    APR_TRY(diff_fields(diff, err));
    APR_TRY(diff_flags(diff, err));
    APR_TRY(diff_rope(diff, "rope_scaling", &a->rope, &b->rope, err));
    if (a->rope_theta_local > 0 && b->rope_theta_local > 0)
        APR_TRY(diff_rope(diff, "rope_scaling of sliding layers", &a->rope_local, &b->rope_local, err));
    return diff_layers(diff, err);
}

/* --- tokenizer --- */

/* The first place where two lists of strings differ: "token 17", "merge 3". */
static apr_status diff_strings(apr_model_diff *diff, const char *what, const apr_str *a, const apr_str *b, size_t n, size_t per_item,
                               apr_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!same_str(a[i], b[i])) return add_numbered(diff, APR_DIFF_TOKENIZER, what, i / per_item, bytes_of(a[i]), bytes_of(b[i]), err);
    return APR_OK;
}

static apr_status diff_vocab(apr_model_diff *diff, apr_error *err)
{
    const apr_vocab *const a = &diff->a->vocab, *const b = &diff->b->vocab;
    const struct {
        const char *name;
        apr_fact_value a, b;
    } facts[] = {
        {"tokens", number_of(APR_FACT_COUNT, (int64_t)a->n_tokens), number_of(APR_FACT_COUNT, (int64_t)b->n_tokens)},
        {"merges", number_of(APR_FACT_COUNT, (int64_t)a->n_merges), number_of(APR_FACT_COUNT, (int64_t)b->n_merges)},
        {"bos id", id_of(a->bos_id), id_of(b->bos_id)},
        {"eos id", id_of(a->eos_id), id_of(b->eos_id)},
        {"pad id", id_of(a->pad_id), id_of(b->pad_id)},
        {"unknown id", id_of(a->unk_id), id_of(b->unk_id)},
        {"adds bos", bool_of(a->add_bos), bool_of(b->add_bos)},
        {"adds eos", bool_of(a->add_eos), bool_of(b->add_eos)},
    };

    APR_TRY(compare(diff, APR_DIFF_TOKENIZER, "kind", number_of(APR_FACT_VOCAB, a->kind), number_of(APR_FACT_VOCAB, b->kind), err));
    if (a->kind == APR_VOCAB_NONE || a->kind != b->kind) return APR_OK;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        APR_TRY(compare(diff, APR_DIFF_TOKENIZER, facts[i].name, facts[i].a, facts[i].b, err));
    if (a->n_tokens == b->n_tokens) APR_TRY(diff_strings(diff, "token", a->tokens, b->tokens, a->n_tokens, 1, err));
    if (a->n_merges == b->n_merges) APR_TRY(diff_strings(diff, "merge", a->merges, b->merges, 2 * a->n_merges, 2, err));
    return compare(diff, APR_DIFF_TOKENIZER, "chat template", text_of(a->chat_template), text_of(b->chat_template), err);
}

/* --- metadata and files --- */

static bool same_kv(const apr_kv *a, const apr_kv *b)
{
    const size_t size = apr_kv_type_bytes(a->elem_type);

    if (a->type != b->type) return false;
    if (a->type == APR_KV_STRING) return same_str(a->value.string, b->value.string);
    if (a->type != APR_KV_ARRAY) return a->value.bits == b->value.bits;
    if (a->elem_type != b->elem_type || a->n_elems != b->n_elems) return false;
    if (a->elem_type != APR_KV_STRING) return a->n_elems == 0 || memcmp(a->value.numbers, b->value.numbers, size * a->n_elems) == 0;
    for (uint64_t i = 0; i < a->n_elems; i++)
        if (!same_str(a->value.strings[i], b->value.strings[i])) return false;
    return true;
}

static const apr_kv *find_kv(const apr_kv_list *list, apr_str key)
{
    for (size_t i = 0; i < list->n_items; i++)
        if (same_str(list->items[i].key, key)) return &list->items[i];
    return NULL;
}

static apr_status diff_metadata(apr_model_diff *diff, apr_error *err)
{
    const apr_kv_list *const a = &diff->a->kv, *const b = &diff->b->kv;

    for (size_t i = 0; i < a->n_items; i++) {
        const apr_kv *const x = &a->items[i], *const y = find_kv(b, x->key);
        if (y == NULL || !same_kv(x, y)) APR_TRY(add(diff, APR_DIFF_METADATA, x->key, kv_of(x), kv_of(y), err));
    }
    for (size_t i = 0; i < b->n_items; i++)
        if (find_kv(a, b->items[i].key) == NULL)
            APR_TRY(add(diff, APR_DIFF_METADATA, b->items[i].key, kv_of(NULL), kv_of(&b->items[i]), err));
    return APR_OK;
}

/* A metadata text and its GGUF key. */
typedef struct keyed_text {
    const char *key;
    const apr_kv *kv;
    bool is_converted; /* conversion carries it over: every text of a safetensors checkpoint, and those that came from one */
} keyed_text;

typedef struct keyed_texts {
    keyed_text *items; /* [n] in the model's order */
    keyed_text *sorted;
    size_t n;
} keyed_texts;

static int by_key(const void *a, const void *b) { return strcmp(((const keyed_text *)a)->key, ((const keyed_text *)b)->key); }

static apr_status list_texts(keyed_texts *texts, const apr_model *model, apr_arena *arena, apr_error *err)
{
    const size_t n = model->kv.n_items;

    texts->items = apr_arena_array(arena, n + 1, sizeof *texts->items);
    texts->sorted = apr_arena_array(arena, n + 1, sizeof *texts->sorted);
    if (texts->items == NULL || texts->sorted == NULL) return apr_no_memory(err, "the metadata");
    for (size_t i = 0; i < n; i++) {
        const apr_kv *const kv = &model->kv.items[i];
        keyed_text *const text = &texts->items[texts->n];
        APR_TRY(apr_metadata_gguf_key(kv, arena, &text->key, err));
        if (text->key == NULL) continue;
        text->kv = kv;
        text->is_converted = model->origin.format == APR_FORMAT_SAFETENSORS || apr_metadata_own_name(kv) != NULL;
        texts->n++;
    }
    memcpy(texts->sorted, texts->items, texts->n * sizeof *texts->items);
    if (texts->n > 0) qsort(texts->sorted, texts->n, sizeof *texts->sorted, by_key);
    return APR_OK;
}

static apr_status note_same(apr_model_diff *diff, const apr_kv *kv, apr_error *err)
{
    enum { MOST_BYTES = 200 };
    const char *const before = diff->same_metadata != NULL ? diff->same_metadata : "";

    if (strlen(before) > MOST_BYTES) return APR_OK;
    diff->same_metadata = apr_arena_print(&diff->arena, "%s%s%.*s", before, *before != '\0' ? ", " : "",
                                          kv->key.n_bytes < 60 ? (int)kv->key.n_bytes : 60, kv->key.text);
    return diff->same_metadata != NULL ? APR_OK : apr_no_memory(err, "the names of metadata");
}

/* Compares the texts of `from` that conversion carries over with `to`. Called for A, then for B (swapped), which skips pairs that the
 * first call compared. */
static apr_status diff_texts(apr_model_diff *diff, const keyed_texts *from, const keyed_texts *to, bool swapped, apr_error *err)
{
    for (size_t i = 0; i < from->n; i++) {
        const keyed_text *const x = &from->items[i], *const y =
                                                         to->n > 0 ? bsearch(x, to->sorted, to->n, sizeof *to->sorted, by_key) : NULL;
        const apr_kv *const other = y != NULL ? y->kv : NULL;
        if (!x->is_converted || (swapped && y != NULL && y->is_converted)) continue;
        if (other != NULL && same_str(x->kv->value.string, other->value.string)) APR_TRY(note_same(diff, x->kv, err));
        else APR_TRY(add(diff, APR_DIFF_METADATA, x->kv->key, kv_of(swapped ? other : x->kv), kv_of(swapped ? x->kv : other), err));
    }
    return APR_OK;
}

static apr_status diff_texts_of_formats(apr_model_diff *diff, apr_error *err)
{
    keyed_texts a = {0}, b = {0};

    if (diff->a->origin.format != APR_FORMAT_SAFETENSORS && diff->b->origin.format != APR_FORMAT_SAFETENSORS) return APR_OK;
    APR_TRY(list_texts(&a, diff->a, &diff->arena, err));
    APR_TRY(list_texts(&b, diff->b, &diff->arena, err));
    APR_TRY(diff_texts(diff, &a, &b, false, err));
    return diff_texts(diff, &b, &a, true, err);
}

static apr_status diff_files(apr_model_diff *diff, apr_error *err)
{
    for (size_t i = 0; i < diff->a->n_attachments; i++) {
        const apr_attachment *const a = &diff->a->attachments[i], *const b = apr_model_attachment(diff->b, a->name);
        if (b != NULL && a->n_bytes == b->n_bytes && (a->n_bytes == 0 || memcmp(a->data, b->data, a->n_bytes) == 0)) continue;
        APR_TRY(add(diff, APR_DIFF_FILE, apr_str_of(a->name), file_of(a), file_of(b), err));
    }
    for (size_t i = 0; i < diff->b->n_attachments; i++) {
        const apr_attachment *const b = &diff->b->attachments[i];
        if (apr_model_attachment(diff->a, b->name) == NULL)
            APR_TRY(add(diff, APR_DIFF_FILE, apr_str_of(b->name), file_of(NULL), file_of(b), err));
    }
    return APR_OK;
}

static apr_status diff_facts(apr_model_diff *diff, bool with_metadata, apr_error *err)
{
    const bool same_format = diff->a->format == diff->b->format && diff->a->origin.format == diff->b->origin.format;

    APR_TRY(diff_hparams(diff, err));
    APR_TRY(diff_vocab(diff, err));
    if (!with_metadata) return APR_OK;
    if (!same_format) return diff_texts_of_formats(diff, err);
    APR_TRY(diff_metadata(diff, err));
    return diff_files(diff, err);
}

/* --- tensors --- */

double apr_diff_relative_max(const apr_metrics *metrics)
{
    const int64_t n = metrics->n - metrics->n_nonfinite;
    if (metrics->max_error == 0.0f || n <= 0) return 0.0;
    const double rms = sqrt(metrics->sum_sq_a / (double)n);
    return rms > 0.0 ? (double)metrics->max_error / rms : INFINITY;
}

static bool same_dims(const apr_tensor *a, const apr_tensor *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* One side of a pair. A packed layout has two valid readings: exact products of code and scale, or these rounded to the type that the
 * layout's library computes in. */
typedef struct side {
    const apr_tensor *tensor;
    apr_dtype library; /* type to round the values to; APR_F32: do not round */
    bool is_products;  /* read the exact products, although readers normally round them */
} side;

static void decode(const side *s, int64_t row, int64_t n_rows, float *values)
{
    apr_tensor products = *s->tensor;
    const int64_t n = n_rows * apr_tensor_columns(s->tensor);

    if (s->is_products) products.dtype = APR_F32;
    apr_decode_rows(&products, row, n_rows, values);
    for (int64_t i = 0; i < n && s->library != APR_F32; i++) values[i] = apr_round_as(s->library, values[i]);
}

/* False: out of memory. */
static bool compare_block(const side sides[2], const apr_row_blocks *blocks, int64_t i, apr_metrics *metrics)
{
    const int64_t row = i * blocks->rows_per_block, n_rows = apr_block_rows(blocks, i);
    float *const a = malloc(apr_block_bytes(blocks)), *const b = malloc(apr_block_bytes(blocks));
    const bool has_memory = a != NULL && b != NULL;

    *metrics = apr_metrics_empty();
    if (has_memory) {
        decode(&sides[0], row, n_rows, a);
        decode(&sides[1], row, n_rows, b);
        apr_metrics_add(metrics, a, b, n_rows * blocks->n_columns);
    }
    free(a);
    free(b);
    return has_memory;
}

/* Blocks are measured in parallel and added in order, so the result does not depend on the number of threads. */
static apr_status compare_sides(const side sides[2], apr_metrics *metrics, apr_error *err)
{
    const apr_row_blocks blocks = apr_row_blocks_of(sides[0].tensor);
    apr_metrics *const pieces = calloc((size_t)blocks.n_blocks + 1, sizeof *pieces);
    bool no_memory = pieces == NULL;

    if (pieces == NULL) return apr_no_memory(err, "the comparison");
    const double steps = (double)apr_tensor_elems(sides[0].tensor) * APR_OPS_EXP; /* two values decoded, and sums of float64 */
#pragma omp parallel for schedule(dynamic) reduction(|| : no_memory) num_threads(apr_threads(apr_all_threads(), blocks.n_blocks, steps))
    for (int64_t i = 0; i < blocks.n_blocks; i++) no_memory = !compare_block(sides, &blocks, i, &pieces[i]) || no_memory;
    *metrics = apr_metrics_empty();
    for (int64_t i = 0; i < blocks.n_blocks; i++) apr_metrics_merge(metrics, &pieces[i]);
    free(pieces);
    return no_memory ? apr_no_memory(err, "decoded values") : APR_OK;
}

static bool are_equal(const apr_metrics *metrics) { return metrics->max_at < 0 && metrics->n_nonfinite == 0; }

/* The other reading of a packed matrix: exact products if it is read rounded, rounded values if it is read as products. */
static side other_numbers(const apr_model *model, const apr_tensor *tensor)
{
    const apr_dtype library = apr_reference_type(model, tensor);
    if (apr_is_read_as_products(model, tensor)) return (side){tensor, library, false};
    return (side){tensor, APR_F32, apr_tensor_is_packed(tensor) && (library == APR_F16 || library == APR_BF16)};
}

static bool has_other_numbers(const side *s) { return s->is_products || s->library != APR_F32; }

/* Compares the other readings of one or both sides; as_library if any combination is equal. */
static apr_status compare_others(const apr_model_diff *diff, apr_tensor_diff *pair, apr_error *err)
{
    const side read[2] = {{pair->a, APR_F32, false}, {pair->b, APR_F32, false}},
               others[2] = {other_numbers(diff->a, pair->a), other_numbers(diff->b, pair->b)};

    for (int which = 1; which < 4 && !pair->as_library; which++) {
        const bool a = (which & 1) != 0, b = (which & 2) != 0;
        const side sides[2] = {a ? others[0] : read[0], b ? others[1] : read[1]};
        apr_metrics metrics;
        if ((a && !has_other_numbers(&others[0])) || (b && !has_other_numbers(&others[1]))) continue;
        APR_TRY(compare_sides(sides, &metrics, err));
        pair->as_library = are_equal(&metrics);
        if (pair->as_library) pair->metrics = metrics;
    }
    return APR_OK;
}

static apr_status compare_values(const apr_model_diff *diff, apr_tensor_diff *pair, apr_error *err)
{
    const side sides[2] = {{pair->a, APR_F32, false}, {pair->b, APR_F32, false}};

    APR_TRY(compare_sides(sides, &pair->metrics, err));
    pair->has_metrics = true;
    return are_equal(&pair->metrics) || pair->metrics.n_nonfinite > 0 ? APR_OK : compare_others(diff, pair, err);
}

static apr_status compare_pair(const apr_model_diff *diff, apr_tensor_diff *pair, double tolerance, apr_error *err)
{
    pair->differs = true;
    if (pair->a == NULL || pair->b == NULL) return APR_OK;
    pair->same_dims = same_dims(pair->a, pair->b);
    if (!pair->same_dims) return APR_OK;
    pair->same_bytes = apr_same_bytes(pair->a, pair->b);
    const bool has_scales = pair->a->scale != NULL || pair->b->scale != NULL; /* equal bytes may then have different values */
    const bool are_stored = apr_tensor_is_stored(pair->a) && apr_tensor_is_stored(pair->b);
    pair->differs = !pair->same_bytes;
    if ((pair->same_bytes && !has_scales) || !apr_can_decode(pair->a->dtype) || !apr_can_decode(pair->b->dtype)) return APR_OK;
    APR_TRY(compare_values(diff, pair, err));
    if (!are_stored && pair->a->dtype == pair->b->dtype && are_equal(&pair->metrics) && !pair->as_library) {
        pair->same_bytes = true; /* one side has no stored bytes; writing its values would give the other's bytes */
        pair->differs = false;
    }
    const bool is_close =
        pair->metrics.n_nonfinite == 0 && apr_diff_relative_max(&pair->metrics) <= tolerance; /* false without a tolerance */
    if (!isnan(tolerance)) pair->differs = !is_close;
    return APR_OK;
}

static apr_status pair_tensors(apr_model_diff *diff, apr_error *err)
{
    diff->tensors = apr_arena_array(&diff->arena, diff->a->n_tensors + diff->b->n_tensors + 1, sizeof *diff->tensors);
    if (diff->tensors == NULL) return apr_no_memory(err, "the list of tensors");
    for (size_t i = 0; i < diff->a->n_tensors; i++) {
        const apr_tensor *const a = &diff->a->tensors[i], *const b = apr_model_find(diff->b, a->name);
        diff->tensors[diff->n_tensors++] = (apr_tensor_diff){.a = a, .b = b};
        diff->n_only_a += b == NULL;
    }
    for (size_t i = 0; i < diff->b->n_tensors; i++) {
        const apr_tensor *const b = &diff->b->tensors[i];
        if (apr_model_find(diff->a, b->name) != NULL) continue;
        diff->tensors[diff->n_tensors++] = (apr_tensor_diff){.b = b};
        diff->n_only_b++;
    }
    return APR_OK;
}

bool apr_tensor_diff_has_same_values(const apr_tensor_diff *pair)
{
    if (pair->has_metrics) return pair->metrics.max_at < 0 && pair->metrics.n_nonfinite == 0;
    return pair->same_bytes;
}

static apr_status compare_tensors(apr_model_diff *diff, double tolerance, const apr_progress *progress, apr_error *err)
{
    uint64_t total = 0, done = 0;

    APR_TRY(pair_tensors(diff, err));
    for (size_t i = 0; i < diff->a->n_tensors; i++) total += diff->a->tensors[i].n_bytes;
    for (size_t i = 0; i < diff->n_tensors; i++) {
        apr_tensor_diff *const pair = &diff->tensors[i];
        const apr_tensor *const named = pair->a != NULL ? pair->a : pair->b;
        apr_progress_report(progress, done, total, named->name);
        APR_TRY(compare_pair(diff, pair, tolerance, err));
        diff->n_differing += pair->differs;
        const bool same_values = !pair->same_bytes && apr_tensor_diff_has_same_values(pair);
        diff->n_same_bytes += pair->same_bytes;
        diff->n_same_values += same_values;
        diff->n_as_library += same_values && pair->as_library;
        diff->n_close += !pair->differs && !pair->same_bytes && !same_values;
        done += pair->a != NULL ? pair->a->n_bytes : 0;
    }
    return APR_OK;
}

apr_status apr_diff_models(apr_model_diff *diff, const apr_model *a, const apr_model *b, const apr_diff_options *options,
                           const apr_progress *progress, apr_error *err)
{
    *diff = (apr_model_diff){.a = a, .b = b};
    APR_TRY(diff_facts(diff, !options->no_metadata, err));
    return compare_tensors(diff, options->tolerance, progress, err);
}

void apr_diff_close(apr_model_diff *diff)
{
    apr_arena_close(&diff->arena);
    *diff = (apr_model_diff){0};
}

bool apr_diff_is_same(const apr_model_diff *diff) { return diff->n_facts == 0 && diff->n_differing == 0; }

bool apr_diff_has_same_values(const apr_model_diff *diff)
{
    for (size_t i = 0; i < diff->n_tensors; i++)
        if (diff->tensors[i].differs && !apr_tensor_diff_has_same_values(&diff->tensors[i])) return false;
    return diff->n_facts == 0;
}
