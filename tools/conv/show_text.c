/* show_text.c - aprconv show as text: tables with a heading for each topic, at most 100 columns wide if names allow it. */
#include "formats/gguf/gguf_endian.h"
#include "runtime/template/chat.h"
#include "tools/conv/show.h"

#include "formats/base/bytes.h"
#include "formats/tensor/packed_weights.h"
#include "formats/tensor/sink.h"
#include "tools/conv/kv_text.h"
#include "tools/report/table.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE_COLUMNS = 64 }; /* columns shown of a long value */

static const apr_column fact_columns[] = {{NULL, false}, {NULL, false}};

static void heading(const char *title) { printf("\n%s%s%s\n", apr_bold(stdout), title, apr_plain(stdout)); }

static void add_fact(apr_table *table, const char *name, const char *value)
{
    apr_table_cell(table, "%s", name);
    apr_table_cell(table, "%s", value);
}

static void add_count(apr_table *table, const char *name, int64_t value)
{
    char text[APR_SMALL_TEXT];
    add_fact(table, name, apr_count_text(text, value));
}

/* " v3", " v3, big-endian" */
static void gguf_version_text(const apr_origin *origin, char *text, size_t n_bytes)
{
    snprintf(text, n_bytes, " v%u%s", apr_gguf_version_number(origin->gguf_version),
             apr_gguf_is_big_endian(origin->gguf_version) ? ", big-endian" : "");
}

static void add_origin(apr_table *table, const apr_model *model)
{
    const apr_origin *const origin = &model->origin;
    char version[32] = "";

    if (model->format != APR_FORMAT_APR || origin->format == APR_FORMAT_NONE) return;
    if (origin->format == APR_FORMAT_GGUF) gguf_version_text(origin, version, sizeof version);
    apr_table_cell(table, "origin");
    apr_table_cell(table, "%s%s%s", apr_format_name(origin->format), version, origin->requantized ? ", with other types now" : "");
}

/* The flags of APR's header: byte 6, see formats/apr/apr.h. */
static void add_apr_flags(apr_table *table, const apr_model *model)
{
    static const struct {
        uint16_t bit;
        const char *name;
    } names[] = {{0x0001, "lz4"},        {0x0002, "zstd"},      {0x0004, "encrypted"},   {0x0020, "quantized"},
                 {0x0200, "vocabulary"}, {0x0400, "row-major"}, {0x0800, "column-major"}};
    char text[128] = "";

    if (model->format != APR_FORMAT_APR || model->n_maps == 0 || model->maps[0].n_bytes < 8) return;
    const uint16_t flags = apr_load_le16(model->maps[0].data + 6);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (flags & names[i].bit) snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? ", " : "", names[i].name);
    apr_table_cell(table, "flags");
    apr_table_cell(table, "0x%04x%s%s", flags, *text ? ": " : "", text);
}

static void add_size(apr_table *table, uint64_t n_bytes)
{
    char count[APR_SMALL_TEXT], size[APR_SMALL_TEXT];

    if (n_bytes == 0) return;
    apr_table_cell(table, "size");
    if (n_bytes < 1024) apr_table_cell(table, "%s", apr_size_text(size, n_bytes));
    else apr_table_cell(table, "%s (%s bytes)", apr_size_text(size, n_bytes), apr_count_text(count, (int64_t)n_bytes));
}

/* "7 matrices in 28 tensors: GPTQ, 4 bits, groups of 128", or what else is packed here. */
static void add_packed(apr_table *table, const apr_model *model, const apr_model_facts *facts)
{
    const char *layout;

    if (model->n_packings > 0) {
        apr_table_cell(table, "packed");
        apr_table_cell(table, "%zu %s in %zu tensors%s%s", model->n_packings, model->n_packings == 1 ? "matrix" : "matrices",
                       facts->n_parts, facts->n_schemes == 1 ? ": " : "", facts->n_schemes == 1 ? facts->schemes[0].scheme : "");
    }
    if (apr_find_packed(model, &layout) == NULL) return;
    apr_table_cell(table, "packed, not read");
    apr_table_cell(table, "%s", layout);
}

static apr_status show_header(const apr_model *model, const apr_model_facts *facts, apr_error *err)
{
    const bool is_gguf = model->format == APR_FORMAT_GGUF, is_apr = model->format == APR_FORMAT_APR;
    static const char *const names[] = {
        [APR_NAMING_HF] = "Hugging Face's", [APR_NAMING_GGML] = "llama.cpp's", [APR_NAMING_META] = "Meta's"};
    char count[APR_SMALL_TEXT], magnitude[APR_SMALL_TEXT], path[512], version[32] = "";
    apr_table table;

    printf("%s%s%s\n", apr_bold(stdout), apr_clean_text(path, sizeof path, model->path, strlen(model->path)), apr_plain(stdout));
    apr_table_start(&table, fact_columns, 2);
    if (is_gguf) gguf_version_text(&model->origin, version, sizeof version);
    apr_table_cell(&table, "container");
    apr_table_cell(&table, "%s%s", apr_format_name(model->format), is_apr ? " v2" : version);
    add_origin(&table, model);
    add_apr_flags(&table, model);
    if (model->n_tensors > 0) add_fact(&table, "names", names[model->naming]);
    if (model->other_weights != NULL) {
        apr_table_cell(&table, "not read");
        apr_table_cell(&table, "%s: the same weights again", model->other_weights);
    }
    if (facts->n_reordered > 0) {
        apr_table_cell(&table, "reordered");
        apr_table_cell(&table, "%zu tensors have their rows in another order than in the original file", facts->n_reordered);
    }
    add_size(&table, facts->file_bytes);
    add_count(&table, "tensors", (int64_t)model->n_tensors);
    add_packed(&table, model, facts);
    if (facts->n_weights > 0) {
        const bool is_large = facts->n_weights >= 1000;
        apr_magnitude_text(magnitude, facts->n_weights);
        apr_table_cell(&table, "weights");
        apr_table_cell(&table, "%s%s%s%s", apr_count_text(count, facts->n_weights), is_large ? " (" : "", is_large ? magnitude : "",
                       is_large ? ")" : "");
        apr_table_cell(&table, "bits per weight");
        apr_table_cell(&table, "%.2f", apr_bits_per_weight(facts->tensor_bytes, facts->n_weights));
    }
    return apr_table_print(&table, stdout, 2, err);
}

static void add_rope(apr_table *table, const char *name, const apr_rope_scaling *rope)
{
    char text[512];
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"factor", rope->factor},
                   {"low frequency factor", rope->low_freq_factor},
                   {"high frequency factor", rope->high_freq_factor},
                   {"original context", (double)rope->original_context},
                   {"beta fast", rope->beta_fast},
                   {"beta slow", rope->beta_slow},
                   {"attention factor", rope->attention_factor},
                   {"mscale", rope->mscale},
                   {"mscale of all dimensions", rope->mscale_all_dim},
                   {"alpha", rope->alpha},
                   {"fraction of the head", rope->partial_rotary_factor},
                   {"frequency factors", (double)rope->n_factors}};

    if (rope->kind == APR_ROPE_PLAIN) return;
    snprintf(text, sizeof text, "%s", apr_rope_name(rope->kind));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value != 0.0)
            snprintf(text + strlen(text), sizeof text - strlen(text), ", %s %.6g", numbers[i].name, numbers[i].value);
    if (rope->no_truncate) snprintf(text + strlen(text), sizeof text - strlen(text), ", not truncated");
    add_fact(table, name, text);
}

/* One property of layers, and the kinds that it can have. */
typedef struct layer_aspect {
    const char *name, *letters; /* letters: one for each kind, printed in upper case */
    uint8_t n_kinds;
    const char *(*name_of)(uint8_t kind);
} layer_aspect;

/* "3 linear, 1 full: LLLF" */
static void add_layers(apr_table *table, const layer_aspect *aspect, const uint8_t *kinds, int64_t n)
{
    int64_t n_of[APR_N_LAYER_KINDS] = {0};
    char text[256] = "", order[41] = "";

    if (kinds == NULL) return;
    for (int64_t i = 0; i < n; i++) {
        n_of[kinds[i]]++;
        if (i < 40) order[i] = (char)(aspect->letters[kinds[i]] - 'a' + 'A');
    }
    for (uint8_t kind = 0; kind < aspect->n_kinds; kind++)
        if (n_of[kind] > 0)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld %s", *text ? ", " : "", (long long)n_of[kind],
                     aspect->name_of(kind));
    if (n_of[0] == n) return;
    apr_table_cell(table, "%s", aspect->name);
    apr_table_cell(table, "%s: %s%s", text, order, n > 40 ? "..." : "");
}

static void add_all_layers(apr_table *table, const apr_hparams *h)
{
    static const layer_aspect mixers = {"layers", apr_layer_letters, APR_N_LAYER_KINDS, apr_layer_kind_name},
                              feed_forwards = {"feed-forwards", apr_ffn_letters, APR_N_FFN_KINDS, apr_ffn_kind_name},
                              positions = {"positions", "rn", 2, apr_position_name};

    add_layers(table, &mixers, h->layer_kinds, h->num_layers);
    add_layers(table, &feed_forwards, h->ffn_kinds, h->num_layers);
    add_layers(table, &positions, h->no_rope, h->num_layers);
}

static apr_status show_hparams(const apr_model *model, apr_error *err)
{
    apr_hparams hparams = model->hparams; /* a copy, because the table's accessors return pointers to non-const */
    const bool has_class = hparams.hf_class != NULL;
    apr_table table;

    heading("Hyperparameters");
    apr_table_start(&table, fact_columns, 2);
    apr_table_cell(&table, "architecture");
    apr_table_cell(&table, "%s%s%s%s", hparams.architecture != NULL && *hparams.architecture ? hparams.architecture : "not stated",
                   has_class ? " (" : "", has_class ? hparams.hf_class : "", has_class ? ")" : "");
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        if (field->is_int && *apr_hparam_int(&hparams, field) != 0) add_count(&table, field->name, *apr_hparam_int(&hparams, field));
        if (field->is_int || *apr_hparam_real(&hparams, field) == 0.0) continue;
        apr_table_cell(&table, "%s", field->name);
        apr_table_cell(&table, "%.7g", *apr_hparam_real(&hparams, field));
    }
    add_rope(&table, "rope_scaling", &hparams.rope);
    add_rope(&table, "sliding layers", &hparams.rope_local);
    add_all_layers(&table, &hparams);
    for (size_t i = 0; i < apr_n_hflag_fields; i++)
        if (*apr_hflag(&hparams, &apr_hflag_fields[i])) add_fact(&table, apr_hflag_fields[i].name, "yes");
    if (hparams.torch_dtype != NULL) add_fact(&table, "torch_dtype", hparams.torch_dtype);
    return apr_table_print(&table, stdout, 2, err);
}

static void add_token(apr_table *table, const char *name, const apr_vocab *vocab, int32_t id)
{
    char text[256];

    if (id < 0) return;
    apr_table_cell(table, "%s", name);
    if ((size_t)id >= vocab->n_tokens) apr_table_cell(table, "%d, which is not a token", id);
    else
        apr_table_cell(table, "%d %s", id,
                       apr_short_text(text, sizeof text, vocab->tokens[id].text, vocab->tokens[id].n_bytes, VALUE_COLUMNS));
}

static void add_stops(apr_table *table, const apr_vocab *vocab)
{
    apr_chat_stops stops;
    char text[1024] = "";

    for (size_t i = 0; i < vocab->n_stop_ids; i++) {
        const int32_t id = vocab->stop_ids[i];
        const apr_str token = id >= 0 && (size_t)id < vocab->n_tokens ? vocab->tokens[id] : (apr_str){"", 0};
        char shown[64];
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d %s", *text ? ", " : "", id,
                 apr_short_text(shown, sizeof shown, token.text, token.n_bytes, 24));
    }
    if (*text) add_fact(table, "stops on", text);
    if (apr_chat_stops_of(vocab, &stops, NULL) == APR_OK && stops.added >= 0) add_token(table, "chat stops on", vocab, stops.added);
}

static apr_status show_vocab(const apr_vocab *vocab, apr_error *err)
{
    char count[APR_SMALL_TEXT], text[512];
    apr_table table;

    heading("Tokenizer");
    apr_table_start(&table, fact_columns, 2);
    apr_table_cell(&table, "kind");
    apr_table_cell(&table, "%s%s%s", apr_vocab_kind_name(vocab->kind), vocab->pre != NULL ? ", pre-tokenizer " : "",
                   vocab->pre != NULL ? vocab->pre : "");
    if (vocab->kind != APR_VOCAB_NONE) {
        int64_t n_control = 0;
        for (size_t i = 0; i < vocab->n_tokens; i++) n_control += vocab->types != NULL && vocab->types[i] == APR_TOKEN_CONTROL;
        apr_table_cell(&table, "tokens");
        apr_table_cell(&table, "%s, %lld of them control tokens", apr_count_text(count, (int64_t)vocab->n_tokens), (long long)n_control);
        if (vocab->n_merges > 0) add_count(&table, "merges", (int64_t)vocab->n_merges);
        add_token(&table, vocab->add_bos ? "bos (added)" : "bos", vocab, vocab->bos_id);
        add_token(&table, vocab->add_eos ? "eos (added)" : "eos", vocab, vocab->eos_id);
        add_token(&table, "pad", vocab, vocab->pad_id);
        add_token(&table, "unknown", vocab, vocab->unk_id);
        add_stops(&table, vocab);
    }
    if (vocab->chat_template != NULL) {
        const size_t n_bytes = strlen(vocab->chat_template), n_line = strcspn(vocab->chat_template, "\n");
        apr_table_cell(&table, "chat template");
        apr_table_cell(&table, "%s bytes: %s", apr_count_text(count, (int64_t)n_bytes),
                       apr_short_text(text, sizeof text, vocab->chat_template, n_line, VALUE_COLUMNS));
    } else add_fact(&table, "chat template", "none");
    return apr_table_print(&table, stdout, 2, err);
}

static apr_status show_metadata(const apr_kv_list *list, apr_error *err)
{
    static const apr_column columns[] = {{NULL, false}, {NULL, false}, {NULL, false}};
    apr_table table;

    heading("Metadata");
    apr_table_start(&table, columns, 3);
    for (size_t i = 0; i < list->n_items; i++) {
        const apr_kv *const kv = &list->items[i];
        char key[256], type[64], value[APR_KV_TEXT];

        apr_table_cell(&table, "%s", apr_short_text(key, sizeof key, kv->key.text, kv->key.n_bytes, VALUE_COLUMNS));
        apr_table_cell(&table, "%s", apr_kv_type_text(kv, type, sizeof type));
        apr_table_cell(&table, "%s", apr_kv_text(kv, value));
    }
    return apr_table_print(&table, stdout, 2, err);
}

static void add_share(apr_table *table, const char *name, const apr_type_share *share, uint64_t all_bytes, double bits)
{
    char count[APR_SMALL_TEXT], size[APR_SMALL_TEXT];

    apr_table_cell(table, "%s", name);
    apr_table_cell(table, "%lld", (long long)share->n_tensors);
    apr_table_cell(table, "%s", apr_count_text(count, share->n_weights));
    apr_table_cell(table, "%s", apr_size_text(size, share->n_bytes));
    apr_table_cell(table, "%.1f %%", all_bytes > 0 ? 100.0 * (double)share->n_bytes / (double)all_bytes : 0.0);
    apr_table_cell(table, "%.2f", bits);
}

static apr_status show_types(const apr_model_facts *facts, apr_error *err)
{
    static const apr_column columns[] = {{"type", false}, {"tensors", true}, {"weights", true},
                                         {"size", true},  {"share", true},   {"bits", true}};
    apr_table table;

    heading("Types");
    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (facts->types[d].n_tensors > 0)
            add_share(&table, apr_dtypes[d].name, &facts->types[d], facts->tensor_bytes, apr_dtype_bits((apr_dtype)d));
    for (size_t i = 0; i < facts->n_schemes; i++) {
        const apr_type_share *const share = &facts->schemes[i].share;
        add_share(&table, facts->schemes[i].scheme, share, facts->tensor_bytes, apr_bits_per_weight(share->n_bytes, share->n_weights));
    }
    return apr_table_print(&table, stdout, 2, err);
}

static void add_tensor(apr_table *table, const apr_tensor *tensor, const char *type, uint64_t n_bytes)
{
    char dims[128], size[APR_SMALL_TEXT];

    apr_table_cell(table, "%s", tensor->name);
    apr_table_cell(table, "%s", type);
    apr_table_cell(table, "%s", apr_dims_text(tensor, dims, sizeof dims));
    apr_table_cell(table, "%s", apr_size_text(size, n_bytes));
}

/* A packed matrix is listed once, at the place of its codes, and an FP8 weight together with its scales. --parts lists all tensors instead. */
static apr_status show_tensors(const apr_model *model, const apr_model_facts *facts, const apr_show_options *options,
                               const apr_pattern *filter, apr_error *err)
{
    static const apr_column columns[] = {{"name", false}, {"type", false}, {"shape", false}, {"size", true}};
    apr_table table;
    char text[APR_SCHEME_TEXT];

    heading("Tensors");
    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const tensor = &model->tensors[i], *const matrix = options->parts ? NULL : facts->matrices[i];
        if (matrix != NULL && matrix->packing->codes != tensor) continue;
        if (!apr_is_shown(filter, matrix != NULL ? matrix->name : tensor->name)) continue;
        if (facts->scaled[i] != NULL && !options->parts) continue;
        const char *const fp8 = options->parts ? NULL : apr_fp8_scheme(tensor, text);
        if (matrix != NULL) add_tensor(&table, matrix, matrix->packing->scheme, apr_matrix_bytes(matrix));
        else if (fp8 != NULL) add_tensor(&table, tensor, fp8, tensor->n_bytes + tensor->scale->n_bytes);
        else add_tensor(&table, tensor, apr_dtypes[tensor->dtype].name, tensor->n_bytes);
    }
    return apr_table_print(&table, stdout, 2, err);
}

static apr_status show_all(const apr_model *model, const apr_model_facts *facts, const apr_show_options *options, const apr_pattern *filter,
                           apr_error *err)
{
    APR_TRY(show_header(model, facts, err));
    APR_TRY(show_hparams(model, err));
    if (model->format != APR_FORMAT_CONFIG) APR_TRY(show_vocab(&model->vocab, err));
    if (options->metadata && model->kv.n_items > 0) APR_TRY(show_metadata(&model->kv, err));
    if (model->n_tensors > 0) APR_TRY(show_types(facts, err));
    if (options->tensors && model->n_tensors > 0) APR_TRY(show_tensors(model, facts, options, filter, err));
    return APR_OK;
}

apr_status apr_show_text(const apr_model *model, const apr_show_options *options, const apr_pattern *filter, apr_error *err)
{
    apr_model_facts facts;

    APR_TRY(apr_model_count(model, &facts, err));
    const apr_status status = show_all(model, &facts, options, filter, err);
    free(facts.matrices);
    return status;
}
