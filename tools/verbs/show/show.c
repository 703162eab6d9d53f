/* show.c - aprconv show: opens a model, counts what is in it, and reports it: tables with a heading for each topic, at most 100 columns wide
 * if names allow it, or JSON, which is complete. */
#include "tools/verbs/show/show.h"

#include "formats/base/bytes.h"
#include "formats/tensor/adapter.h"
#include "formats/tensor/imatrix.h"
#include "formats/tensor/model.h"
#include "formats/tensor/packed_weights.h"
#include "formats/tensor/packing.h"
#include "formats/tensor/sink.h"
#include "runtime/template/chat.h"
#include "tools/cli/model_paths.h"
#include "tools/report/report.h"
#include "tools/report/text.h"
#include "tools/verbs/run/imatrix_print.h"
#include "tools/verbs/show/each_file.h"
#include "tools/verbs/show/kind_names.h"
#include "tools/verbs/show/kv_text.h"
#include "tools/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE_COLUMNS = 64 }; /* columns shown of a long value */

/* --- what is counted --- */

/* One line of the histogram. */
typedef struct type_share {
    int64_t n_tensors, n_weights;
    uint64_t n_bytes;
} type_share;

/* Packed matrices of one scheme (formats/tensor/packing.h). */
typedef struct scheme_share {
    const char *scheme;
    type_share share;
} scheme_share;

enum { MAX_SCHEMES = 16, SCHEME_TEXT = 64 }; /* if there are more schemes, the last one stands for all others */

typedef struct model_facts {
    uint64_t file_bytes, tensor_bytes;
    int64_t n_weights; /* without scales of FP8 weights; of packed matrices, the weights that they decode to */
    size_t n_reordered;
    type_share types[APR_DTYPE_COUNT]; /* without the parts of packed matrices */
    scheme_share schemes[MAX_SCHEMES];
    size_t n_schemes, n_parts;
    char fp8_schemes[MAX_SCHEMES][SCHEME_TEXT]; /* names of FP8 schemes, which have no apr_packing */
    const apr_tensor **matrices;                /* [n_tensors] the packed matrix that a tensor is part of, or NULL. The caller frees it */
    const apr_tensor **scaled; /* [n_tensors] the FP8 weight that a tensor holds the scales of, or NULL. Freed with `matrices` */
} model_facts;

/* The stored bytes of all parts of a packed matrix. */
static uint64_t matrix_bytes(const apr_tensor *matrix) { return apr_packing_bytes(matrix->packing, matrix->packing->rows); }

static void add_to(type_share *share, const apr_tensor *tensor, uint64_t n_bytes)
{
    share->n_tensors++;
    share->n_weights += apr_tensor_elems(tensor);
    share->n_bytes += n_bytes;
}

/* The share of a scheme; of "others" if the table is full. */
static type_share *share_of(model_facts *facts, const char *scheme)
{
    size_t i = 0;
    while (i < facts->n_schemes && strcmp(facts->schemes[i].scheme, scheme) != 0) i++;
    if (i == MAX_SCHEMES) facts->schemes[--i].scheme = "others";
    if (i == facts->n_schemes) facts->schemes[facts->n_schemes++].scheme = scheme;
    return &facts->schemes[i].share;
}

static void count_matrix(const apr_model *model, const apr_tensor *matrix, model_facts *facts)
{
    const apr_packing *const p = matrix->packing;

    for (size_t i = 0; i < p->n_parts; i++) facts->matrices[p->parts[i] - model->tensors] = matrix;
    add_to(share_of(facts, p->scheme), matrix, matrix_bytes(matrix));
    facts->n_parts += p->n_parts;
    facts->n_weights += apr_tensor_elems(matrix);
}

/* "FP8 E4M3, blocks of 128 x 128" for an FP8 weight with a separate tensor of scales; NULL for other tensors. Returns text. */
static const char *fp8_scheme(const apr_tensor *tensor, char text[SCHEME_TEXT])
{
    const bool is_fp8 = tensor->dtype == APR_F8_E4M3 || tensor->dtype == APR_F8_E5M2;
    if (!is_fp8 || tensor->scale == NULL) return NULL;
    const long long rows = (long long)tensor->scale_rows, columns = (long long)tensor->scale_columns;
    const bool is_one = apr_tensor_elems(tensor->scale) == 1 && rows == apr_tensor_rows(tensor) && columns == apr_tensor_columns(tensor);
    const char *const type = tensor->dtype == APR_F8_E4M3 ? "FP8 E4M3" : "FP8 E5M2";

    if (is_one) snprintf(text, SCHEME_TEXT, "%s, one scale", type);
    else if (rows > 1) snprintf(text, SCHEME_TEXT, "%s, blocks of %lld x %lld", type, rows, columns);
    else if (columns < apr_tensor_columns(tensor)) snprintf(text, SCHEME_TEXT, "%s, groups of %lld", type, columns);
    else snprintf(text, SCHEME_TEXT, "%s, a scale for each row", type);
    return text;
}

/* Counts an FP8 weight with its scales. Scales that several weights share are counted once. */
static bool count_fp8(const apr_model *model, const apr_tensor *tensor, model_facts *facts)
{
    char text[SCHEME_TEXT];
    const size_t n_before = facts->n_schemes;

    if (fp8_scheme(tensor, text) == NULL) return false;
    type_share *const share = share_of(facts, text);
    if (facts->n_schemes > n_before) { /* copies the local text */
        memcpy(facts->fp8_schemes[n_before], text, sizeof text);
        facts->schemes[n_before].scheme = facts->fp8_schemes[n_before];
    }
    const bool is_inside = apr_table_has(model->tensors, model->n_tensors, tensor->scale);
    const size_t at = is_inside ? (size_t)(tensor->scale - model->tensors) : 0;
    add_to(share, tensor, tensor->n_bytes + (is_inside && facts->scaled[at] == NULL ? tensor->scale->n_bytes : 0));
    if (is_inside) facts->scaled[at] = tensor;
    facts->n_weights += apr_tensor_elems(tensor);
    return true;
}

/* Fails only if memory runs out. */
static apr_status count_model(const apr_model *model, model_facts *facts, apr_error *err)
{
    *facts = (model_facts){.matrices = calloc(2 * model->n_tensors + 1, sizeof *facts->matrices)};
    if (facts->matrices == NULL) return apr_no_memory(err, "a list of tensors");
    facts->scaled = facts->matrices + model->n_tensors;
    for (size_t i = 0; i < model->n_maps; i++) facts->file_bytes += model->maps[i].n_bytes;
    for (size_t i = 0; i < model->n_packings; i++) count_matrix(model, &model->packings[i], facts);
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const tensor = &model->tensors[i];
        facts->tensor_bytes += tensor->n_bytes;
        facts->n_reordered += tensor->origin_chain.n_steps > 0;
        if (facts->matrices[i] != NULL || count_fp8(model, tensor, facts)) continue;
    }
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const tensor = &model->tensors[i];
        char text[SCHEME_TEXT];
        if (facts->matrices[i] != NULL || facts->scaled[i] != NULL || fp8_scheme(tensor, text) != NULL) continue;
        add_to(&facts->types[tensor->dtype], tensor, tensor->n_bytes);
        facts->n_weights += apr_tensor_elems(tensor) - (tensor->scale != NULL ? apr_tensor_elems(tensor->scale) : 0);
    }
    return APR_OK;
}

/* 0 when there are none */
static double bits_per_weight(uint64_t n_bytes, int64_t n_weights)
{
    return n_weights > 0 ? 8.0 * (double)n_bytes / (double)n_weights : 0.0;
}

/* --- header --- */

/* " v3", " v3, big-endian" */
static void gguf_version_text(const apr_origin *origin, char *text, size_t n_bytes)
{
    snprintf(text, n_bytes, " v%u%s", apr_gguf_version_number(origin->gguf_version),
             apr_gguf_is_big_endian(origin->gguf_version) ? ", big-endian" : "");
}

/* What an APR was made from, for people. JSON says it for every file, in an object at the end. */
static void report_origin(apr_report *r, const apr_model *model)
{
    const apr_origin *const origin = &model->origin;
    const bool is_told = model->format == APR_FORMAT_APR && origin->format != APR_FORMAT_NONE;
    char version[32] = "";

    if (origin->format == APR_FORMAT_GGUF) gguf_version_text(origin, version, sizeof version);
    apr_report_fact(r, NULL, apr_as_text(NULL), is_told ? "origin" : NULL, "%s%s%s", apr_format_name(origin->format), version,
                    origin->requantized ? ", with other types now" : "");
}

static void put_origin(apr_report *r, const apr_model *model, const model_facts *facts)
{
    const apr_origin *const origin = &model->origin;

    if (r->json == NULL) return;
    apr_json_open(r->json, "origin", '{');
    apr_report_member(r, "format", apr_as_text(apr_format_name(origin->format)));
    if (origin->format == APR_FORMAT_GGUF) apr_report_member(r, "gguf_version", apr_as_uint(apr_gguf_version_number(origin->gguf_version)));
    if (apr_gguf_is_big_endian(origin->gguf_version)) apr_report_member(r, "big_endian", apr_as_bool(true));
    apr_report_member(r, "requantized", apr_as_bool(origin->requantized));
    apr_report_member(r, "n_reordered", apr_as_uint(facts->n_reordered));
    apr_json_close(r->json, '}');
}

/* The flags of APR's header: byte 6, see formats/apr/apr.h. */
static void report_apr_flags(apr_report *r, const apr_model *model)
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
    apr_report_fact(r, "flags", apr_as_uint(flags), "flags", "0x%04x%s%s", flags, *text ? ": " : "", text);
    if (r->json == NULL) return;
    apr_json_open(r->json, "flag_names", '[');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (flags & names[i].bit) apr_report_member(r, NULL, apr_as_text(names[i].name));
    apr_json_close(r->json, ']');
}

static void report_size(apr_report *r, uint64_t n_bytes)
{
    const char *const label = n_bytes > 0 ? "size" : NULL;
    char count[APR_SMALL_TEXT], size[APR_SMALL_TEXT];

    apr_size_text(size, n_bytes);
    if (n_bytes < 1024) apr_report_fact(r, "file_bytes", apr_as_uint(n_bytes), label, "%s", size);
    else apr_report_fact(r, "file_bytes", apr_as_uint(n_bytes), label, "%s (%s bytes)", size, apr_count_text(count, (int64_t)n_bytes));
}

/* "7 matrices in 28 tensors: GPTQ, 4 bits, groups of 128", or what else is packed here. JSON lists the matrices. */
static void report_packed(apr_report *r, const apr_model *model, const model_facts *facts)
{
    const char *layout;
    const size_t n = model->n_packings;
    const bool is_one = facts->n_schemes == 1;

    apr_report_fact(r, NULL, apr_as_text(NULL), n > 0 ? "packed" : NULL, "%zu %s in %zu tensors%s%s", n, n == 1 ? "matrix" : "matrices",
                    facts->n_parts, is_one ? ": " : "", is_one ? facts->schemes[0].scheme : "");
    if (apr_find_packed(model, &layout) != NULL) apr_report_string(r, "packed_not_read", "packed, not read", layout);
}

static void report_weights(apr_report *r, const model_facts *facts)
{
    const int64_t n = facts->n_weights;
    const double bits = bits_per_weight(facts->tensor_bytes, n);
    const bool is_large = n >= 1000;
    char count[APR_SMALL_TEXT], magnitude[APR_SMALL_TEXT];

    apr_report_fact(r, "n_weights", apr_as_int(n), n > 0 ? "weights" : NULL, "%s%s%s%s", apr_count_text(count, n), is_large ? " (" : "",
                    is_large ? apr_magnitude_text(magnitude, n) : "", is_large ? ")" : "");
    apr_report_fact(r, "bits_per_weight", apr_as_real(bits), n > 0 ? "bits per weight" : NULL, "%.2f", bits);
}

static void report_header(apr_report *r, const apr_model *model, const model_facts *facts)
{
    static const struct {
        const char *key, *text;
    } namings[] = {
        [APR_NAMING_HF] = {"hf", "Hugging Face's"}, [APR_NAMING_GGML] = {"ggml", "llama.cpp's"}, [APR_NAMING_META] = {"meta", "Meta's"}};
    char path[512], version[32] = "";

    if (model->format == APR_FORMAT_GGUF) gguf_version_text(&model->origin, version, sizeof version);
    apr_report_facts(r, apr_clean_text(path, sizeof path, model->path, strlen(model->path)), "");
    apr_report_member(r, "path", apr_as_text(model->path));
    apr_report_fact(r, "container", apr_as_text(apr_format_name(model->format)), "container", "%s%s", apr_format_name(model->format),
                    model->format == APR_FORMAT_APR ? " v2" : version);
    report_origin(r, model);
    report_apr_flags(r, model);
    apr_report_fact(r, "names", apr_as_text(namings[model->naming].key), model->n_tensors > 0 ? "names" : NULL, "%s",
                    namings[model->naming].text);
    if (model->other_weights != NULL)
        apr_report_fact(r, "not_read", apr_as_text(model->other_weights), "not read", "%s: the same weights again", model->other_weights);
    if (facts->n_reordered > 0)
        apr_report_fact(r, NULL, apr_as_text(NULL), "reordered", "%zu tensors have their rows in another order than in the original file",
                        facts->n_reordered);
    report_size(r, facts->file_bytes);
    apr_report_member(r, "tensor_bytes", apr_as_uint(facts->tensor_bytes));
    apr_report_count(r, "n_tensors", "tensors", (int64_t)model->n_tensors);
    report_packed(r, model, facts);
    report_weights(r, facts);
    put_origin(r, model, facts);
    apr_report_close(r);
}

/* --- hyperparameters --- */

static void put_factors(apr_json_text *out, const char *key, const double *factors, int64_t n)
{
    if (n == 0) return;
    apr_json_open(out, key, '[');
    for (int64_t i = 0; i < n; i++) apr_json_real(out, NULL, factors[i]);
    apr_json_close(out, ']');
}

/* How rotary positions are scaled: in text the numbers that are not 0, in one line; in JSON an object. */
static void report_rope(apr_report *r, const char *key, const char *label, const apr_rope_scaling *rope)
{
    const struct {
        const char *key, *label; /* label NULL: not in text; key NULL: not in JSON */
        double value;
        bool is_int, is_bool;
    } numbers[] = {{"factor", "factor", rope->factor},
                   {"low_freq_factor", "low frequency factor", rope->low_freq_factor},
                   {"high_freq_factor", "high frequency factor", rope->high_freq_factor},
                   {"original_context", "original context", (double)rope->original_context, .is_int = true},
                   {"beta_fast", "beta fast", rope->beta_fast},
                   {"beta_slow", "beta slow", rope->beta_slow},
                   {"attention_factor", "attention factor", rope->attention_factor},
                   {"truncate", NULL, !rope->no_truncate, .is_bool = true},
                   {"mscale", "mscale", rope->mscale},
                   {"mscale_all_dim", "mscale of all dimensions", rope->mscale_all_dim},
                   {"alpha", "alpha", rope->alpha},
                   {"partial_rotary_factor", "fraction of the head", rope->partial_rotary_factor},
                   {NULL, "frequency factors", (double)rope->n_factors}};
    const char *const kind = apr_rope_name(rope->kind);
    char text[512];

    if (r->json != NULL) {
        if (key == NULL) return;
        apr_json_open(r->json, key, '{');
        apr_report_member(r, "kind", apr_as_text(kind));
    }
    snprintf(text, sizeof text, "%s", kind);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && rope->kind != APR_ROPE_PLAIN; i++) {
        const double value = numbers[i].value;
        if (numbers[i].label != NULL && value != 0.0)
            snprintf(text + strlen(text), sizeof text - strlen(text), ", %s %.6g", numbers[i].label, value);
        if (numbers[i].key == NULL) continue;
        apr_report_member(r, numbers[i].key,
                          numbers[i].is_int    ? apr_as_int(rope->original_context)
                          : numbers[i].is_bool ? apr_as_bool(value != 0.0)
                                               : apr_as_real(value));
    }
    if (rope->no_truncate) snprintf(text + strlen(text), sizeof text - strlen(text), ", not truncated");
    if (rope->kind != APR_ROPE_PLAIN) apr_report_fact(r, NULL, apr_as_text(NULL), label, "%s", text);
    if (r->json == NULL) return;
    if (rope->kind != APR_ROPE_PLAIN) put_factors(r->json, "short_factor", rope->short_factor, rope->n_factors);
    if (rope->kind != APR_ROPE_PLAIN) put_factors(r->json, "long_factor", rope->long_factor, rope->n_factors);
    apr_json_close(r->json, '}');
}

/* A property of layers that may differ from layer to layer. */
typedef struct layer_aspect {
    const char *key, *label, *letters; /* letters: one for each kind, printed in upper case */
    uint8_t n_kinds;
    const char *(*name_of)(uint8_t kind);
    const uint8_t *kinds; /* [num_layers], or NULL: all layers are of the same kind */
} layer_aspect;

/* In text "3 linear, 1 full: LLLF", in JSON a name for each layer. Left out of the text if all layers are of the first kind. */
static void report_layers(apr_report *r, const layer_aspect *aspect, int64_t n)
{
    const uint8_t *const kinds = aspect->kinds;
    int64_t n_of[APR_N_LAYER_KINDS] = {0};
    char text[256] = "", order[41] = "";

    if (kinds == NULL) return;
    if (r->json != NULL) {
        apr_json_open(r->json, aspect->key, '[');
        for (int64_t i = 0; i < n; i++) apr_report_member(r, NULL, apr_as_text(aspect->name_of(kinds[i])));
        apr_json_close(r->json, ']');
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        n_of[kinds[i]]++;
        if (i < 40) order[i] = (char)(aspect->letters[kinds[i]] - 'a' + 'A');
    }
    for (uint8_t kind = 0; kind < aspect->n_kinds; kind++)
        if (n_of[kind] > 0)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld %s", *text ? ", " : "", (long long)n_of[kind],
                     aspect->name_of(kind));
    if (n_of[0] != n) apr_report_fact(r, NULL, apr_as_text(NULL), aspect->label, "%s: %s%s", text, order, n > 40 ? "..." : "");
}

static const char *ffn_kind_name(uint8_t kind)
{
    static const char *const names[] = {[APR_FFN_DENSE] = "dense", [APR_FFN_EXPERTS] = "experts", [APR_FFN_NONE] = "none"};
    return names[kind];
}

static const char *index_name(uint8_t shares) { return shares ? "shared" : "own"; }
static const char *position_name(uint8_t has_none) { return has_none ? "none" : "rotary"; }

static void report_all_layers(apr_report *r, const apr_hparams *h)
{
    const layer_aspect aspects[] = {{"layer_kinds", "layers", apr_layer_letters, APR_N_LAYER_KINDS, apr_layer_kind_name, h->layer_kinds},
                                    {"ffn_kinds", "feed-forwards", apr_ffn_letters, APR_N_FFN_KINDS, ffn_kind_name, h->ffn_kinds},
                                    {"positions", "positions", "rn", 2, position_name, h->no_rope},
                                    {"indexes", "indexes", "os", 2, index_name, h->shares_index}};

    for (size_t i = 0; i < sizeof aspects / sizeof *aspects; i++) report_layers(r, &aspects[i], h->num_layers);
}

/* Text names the flags that are set. JSON has three of them always, first; the others only if they are set. */
static void report_flags(apr_report *r, const apr_hparams *h)
{
    apr_report_member(r, "tie_word_embeddings", apr_as_bool(h->tie_word_embeddings));
    apr_report_member(r, "attention_bias", apr_as_bool(h->attention_bias));
    apr_report_member(r, "norm_topk_prob", apr_as_bool(h->norm_topk_prob));
    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        const apr_hflag_field *const flag = &apr_hflag_fields[i];
        const bool is_there = flag->offset == offsetof(apr_hparams, tie_word_embeddings) ||
                              flag->offset == offsetof(apr_hparams, attention_bias) ||
                              flag->offset == offsetof(apr_hparams, norm_topk_prob);
        if (apr_hflag_get(h, flag)) apr_report_fact(r, is_there ? NULL : flag->name, apr_as_bool(true), flag->name, "yes");
    }
}

/* Numbers that the file does not state are left out. */
static void report_hparams(apr_report *r, const apr_model *model)
{
    const apr_hparams *const h = &model->hparams;
    const bool has_class = h->hf_class != NULL;

    apr_report_facts(r, "Hyperparameters", "hyperparameters");
    apr_report_fact(r, "architecture", apr_as_text(h->architecture), "architecture", "%s%s%s%s",
                    h->architecture != NULL && *h->architecture ? h->architecture : "not stated", has_class ? " (" : "",
                    has_class ? h->hf_class : "", has_class ? ")" : "");
    apr_report_member(r, "hf_class", apr_as_text(h->hf_class));
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const double real = apr_hparam_get_real(h, field);
        if (apr_hparam_get_int(h, field) != 0) apr_report_count(r, field->name, field->name, apr_hparam_get_int(h, field));
        if (real != 0.0) apr_report_fact(r, field->name, apr_as_real(real), field->name, "%.7g", real);
    }
    report_rope(r, "rope_scaling", "rope_scaling", &h->rope);
    report_rope(r, h->rope_theta_local > 0 ? "rope_scaling_local" : NULL, "sliding layers", &h->rope_local);
    if (r->json == NULL) report_all_layers(r, h);
    report_flags(r, h);
    apr_report_string(r, "torch_dtype", "torch_dtype", h->torch_dtype);
    if (r->json != NULL) report_all_layers(r, h);
    apr_report_close(r);
}

/* --- tokenizer --- */

/* label NULL: not in text. An id below 0 is null in JSON, and left out of the text. */
static void report_token(apr_report *r, const char *key, const char *label, const apr_vocab *vocab, int32_t id)
{
    const apr_json_value value = id < 0 ? apr_as_text_or_null(NULL) : apr_as_int(id);
    char text[256];

    if (id < 0 || (size_t)id >= vocab->n_tokens) apr_report_fact(r, key, value, id < 0 ? NULL : label, "%d, which is not a token", id);
    else
        apr_report_fact(r, key, value, label, "%d %s", id,
                        apr_short_text(text, sizeof text, vocab->tokens[id].text, vocab->tokens[id].n_bytes, VALUE_COLUMNS));
}

static void report_stops(apr_report *r, const apr_vocab *vocab, bool has_tokens)
{
    apr_chat_stops stops;
    char text[1024] = "";

    if (r->json != NULL) apr_json_open(r->json, "stop_ids", '[');
    for (size_t i = 0; i < vocab->n_stop_ids; i++) {
        const int32_t id = vocab->stop_ids[i];
        const apr_str token = id >= 0 && (size_t)id < vocab->n_tokens ? vocab->tokens[id] : (apr_str){"", 0};
        char shown[64];
        apr_report_member(r, NULL, apr_as_int(id));
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d %s", *text ? ", " : "", id,
                 apr_short_text(shown, sizeof shown, token.text, token.n_bytes, 24));
    }
    if (r->json != NULL) apr_json_close(r->json, ']');
    apr_report_fact(r, NULL, apr_as_text(NULL), has_tokens && *text ? "stops on" : NULL, "%s", text);
    if (apr_chat_stops_of(vocab, &stops, NULL) == APR_OK && stops.added >= 0)
        report_token(r, "turn_end_id", has_tokens ? "chat stops on" : NULL, vocab, stops.added);
}

static void report_template(apr_report *r, const char *template)
{
    char count[APR_SMALL_TEXT], text[512];

    if (template == NULL) apr_report_fact(r, NULL, apr_as_text(NULL), "chat template", "none");
    else
        apr_report_fact(r, "chat_template", apr_as_text(template), "chat template", "%s bytes: %s",
                        apr_count_text(count, (int64_t)strlen(template)),
                        apr_short_text(text, sizeof text, template, strcspn(template, "\n"), VALUE_COLUMNS));
}

/* Without the tokens themselves, which are in a GGUF's metadata or in tokenizer.json. */
static void report_vocab(apr_report *r, const apr_model *model)
{
    const char *const kind = apr_vocab_kind_name(model->vocab.kind);
    const apr_vocab *const vocab = &model->vocab;
    const bool has_tokens = vocab->kind != APR_VOCAB_NONE, has_pre = vocab->pre != NULL;
    int64_t n_control = 0;
    char count[APR_SMALL_TEXT];

    for (size_t i = 0; i < vocab->n_tokens; i++) n_control += vocab->types != NULL && vocab->types[i] == APR_TOKEN_CONTROL;
    apr_report_facts(r, model->format != APR_FORMAT_CONFIG ? "Tokenizer" : NULL, "tokenizer");
    apr_report_fact(r, "kind", apr_as_text(kind), "kind", "%s%s%s", kind, has_pre ? ", pre-tokenizer " : "", has_pre ? vocab->pre : "");
    apr_report_member(r, "pre", apr_as_text(vocab->pre));
    apr_report_member(r, "pattern", apr_as_text(vocab->pattern));
    apr_report_fact(r, "n_tokens", apr_as_uint(vocab->n_tokens), has_tokens ? "tokens" : NULL, "%s, %lld of them control tokens",
                    apr_count_text(count, (int64_t)vocab->n_tokens), (long long)n_control);
    apr_report_count(r, "n_merges", has_tokens && vocab->n_merges > 0 ? "merges" : NULL, (int64_t)vocab->n_merges);
    report_token(r, "bos_id", !has_tokens ? NULL : vocab->add_bos ? "bos (added)" : "bos", vocab, vocab->bos_id);
    report_token(r, "eos_id", !has_tokens ? NULL : vocab->add_eos ? "eos (added)" : "eos", vocab, vocab->eos_id);
    report_token(r, "pad_id", has_tokens ? "pad" : NULL, vocab, vocab->pad_id);
    report_token(r, "unk_id", has_tokens ? "unknown" : NULL, vocab, vocab->unk_id);
    apr_report_member(r, "add_bos", apr_as_bool(vocab->add_bos));
    apr_report_member(r, "add_eos", apr_as_bool(vocab->add_eos));
    report_stops(r, vocab, has_tokens);
    report_template(r, vocab->chat_template);
    apr_report_close(r);
}

/* --- metadata, attachments, types --- */

static void report_metadata(apr_report *r, const apr_kv_list *list)
{
    static const apr_column columns[] = {{NULL, false}, {NULL, false}, {NULL, false}};

    apr_report_table(r, list->n_items > 0 ? "Metadata" : NULL, "metadata", columns, 3);
    for (size_t i = 0; i < list->n_items; i++) {
        const apr_kv *const kv = &list->items[i];
        char key[256], type[64], value[APR_KV_TEXT];

        apr_report_row(r);
        if (r->json != NULL) {
            apr_json_string(r->json, "key", kv->key.text, kv->key.n_bytes);
            apr_report_member(r, "type", apr_as_text(apr_kv_type_name(kv->type)));
            if (kv->type == APR_KV_ARRAY) apr_report_member(r, "elem_type", apr_as_text(apr_kv_type_name(kv->elem_type)));
            apr_kv_json(r->json, "value", kv);
            continue;
        }
        apr_report_cell(r, apr_as_text(NULL), "%s", apr_short_text(key, sizeof key, kv->key.text, kv->key.n_bytes, VALUE_COLUMNS));
        apr_report_cell(r, apr_as_text(NULL), "%s", apr_kv_type_text(kv, type, sizeof type));
        apr_report_cell(r, apr_as_text(NULL), "%s", apr_kv_text(kv, value));
    }
    apr_report_close(r);
}

static void report_attachments(apr_report *r, const apr_model *model)
{
    apr_report_table(r, NULL, "attachments", NULL, 0);
    for (size_t i = 0; i < model->n_attachments; i++) {
        apr_report_row(r);
        apr_report_member(r, "name", apr_as_text(model->attachments[i].name));
        apr_report_member(r, "n_bytes", apr_as_uint(model->attachments[i].n_bytes));
    }
    apr_report_close(r);
}

static void report_share(apr_report *r, const char *name, const type_share *share, uint64_t all_bytes, double bits)
{
    char count[APR_SMALL_TEXT], size[APR_SMALL_TEXT];

    apr_report_row(r);
    apr_report_cell(r, apr_as_text(name), "%s", name);
    apr_report_cell(r, apr_as_int(share->n_tensors), "%lld", (long long)share->n_tensors);
    apr_report_cell(r, apr_as_int(share->n_weights), "%s", apr_count_text(count, share->n_weights));
    apr_report_cell(r, apr_as_uint(share->n_bytes), "%s", apr_size_text(size, share->n_bytes));
    apr_report_cell(r, apr_as_text(NULL), "%.1f %%", all_bytes > 0 ? 100.0 * (double)share->n_bytes / (double)all_bytes : 0.0);
    apr_report_cell(r, apr_as_text(NULL), "%.2f", bits);
}

/* In JSON the schemes of packed matrices and FP8 weights are an array of their own. */
static void report_types(apr_report *r, const apr_model *model, const model_facts *facts)
{
    static const apr_column types[] = {{"type", .key = "dtype"},
                                       {"tensors", true, .key = "n_tensors"},
                                       {"weights", true, .key = "n_weights"},
                                       {"size", true, .key = "n_bytes"},
                                       {"share", true},
                                       {"bits", true}};
    static const apr_column schemes[] = {{.key = "scheme"}, {.key = "n_matrices"}, {.key = "n_weights"}, {.key = "n_bytes"}, {0}, {0}};

    apr_report_table(r, model->n_tensors > 0 ? "Types" : NULL, "types", types, sizeof types / sizeof *types);
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (facts->types[d].n_tensors > 0)
            report_share(r, apr_dtypes[d].name, &facts->types[d], facts->tensor_bytes, apr_dtype_bits((apr_dtype)d));
    if (facts->n_schemes > 0) apr_report_continue(r, "schemes", schemes);
    for (size_t i = 0; i < facts->n_schemes; i++) {
        const type_share *const share = &facts->schemes[i].share;
        report_share(r, facts->schemes[i].scheme, share, facts->tensor_bytes, bits_per_weight(share->n_bytes, share->n_weights));
    }
    apr_report_close(r);
}

/* --- tensors --- */

static const apr_column tensor_columns[] = {{"name", .key = "name"}, {"type", .key = "dtype"}, {"shape"}, {"size", true, .key = "n_bytes"}};
enum { N_TENSOR_COLUMNS = sizeof tensor_columns / sizeof *tensor_columns };

/* type: in text; in JSON it is the tensor's, and that which a packed matrix decodes to. n_bytes: of all parts as stored. */
static void report_tensor(apr_report *r, const apr_tensor *tensor, const char *type, uint64_t n_bytes)
{
    char dims[128], size[APR_SMALL_TEXT];

    apr_report_row(r);
    apr_report_cell(r, apr_as_text(tensor->name), "%s", tensor->name);
    apr_report_member(r, "scheme", apr_as_text(apr_tensor_is_packed(tensor) ? apr_tensor_encoding(tensor) : NULL));
    apr_report_cell(r, apr_as_text(apr_dtypes[tensor->dtype].name), "%s", type);
    if (r->json != NULL) {
        apr_json_open(r->json, "shape", '[');
        for (int i = 0; i < tensor->rank; i++) apr_report_member(r, NULL, apr_as_int(tensor->dims[i]));
        apr_json_close(r->json, ']');
    }
    apr_report_cell(r, apr_as_text(NULL), "%s", apr_dims_text(tensor, dims, sizeof dims));
    apr_report_cell(r, apr_as_uint(n_bytes), "%s", apr_size_text(size, n_bytes));
}

/* whole: the packed matrix or FP8 weight that the tensor is part of, or NULL. */
static void put_tensor(apr_report *r, const apr_tensor *tensor, const apr_tensor *whole)
{
    const apr_chain *const chain = &tensor->origin_chain;
    char steps[APR_CHAIN_TEXT], scheme[SCHEME_TEXT];

    report_tensor(r, tensor, "", tensor->n_bytes);
    apr_report_member(r, "origin_name", apr_as_text(tensor->origin_name));
    if (chain->n_steps == 1) apr_report_member(r, "step", apr_as_text(apr_step_kinds[chain->steps[0].kind].name));
    else if (chain->n_steps > 1) apr_report_member(r, "steps", apr_as_text(apr_chain_text(chain, steps)));
    if (tensor->scale != NULL) apr_report_member(r, "scale", apr_as_text(tensor->scale->name));
    apr_report_member(r, "scheme", apr_as_text(fp8_scheme(tensor, scheme)));
    if (whole != NULL) apr_report_member(r, "part_of", apr_as_text(whole->name));
}

static void put_matrix(apr_report *r, const apr_tensor *matrix)
{
    report_tensor(r, matrix, "", matrix_bytes(matrix));
    apr_json_open(r->json, "parts", '[');
    for (size_t i = 0; i < matrix->packing->n_parts; i++) apr_report_member(r, NULL, apr_as_text(matrix->packing->parts[i]->name));
    apr_json_close(r->json, ']');
}

/* JSON lists every tensor, and then the packed matrices. */
static void put_tensors(apr_report *r, const apr_model *model, const model_facts *facts, const apr_pattern *filter)
{
    apr_report_table(r, NULL, "tensors", tensor_columns, N_TENSOR_COLUMNS);
    for (size_t i = 0; i < model->n_tensors; i++)
        if (apr_is_shown(filter, model->tensors[i].name))
            put_tensor(r, &model->tensors[i], facts->matrices[i] != NULL ? facts->matrices[i] : facts->scaled[i]);
    if (model->n_packings > 0) apr_report_continue(r, "matrices", tensor_columns);
    for (size_t i = 0; i < model->n_packings; i++)
        if (apr_is_shown(filter, model->packings[i].name)) put_matrix(r, &model->packings[i]);
    apr_report_close(r);
}

/* Text lists a packed matrix once, at the place of its codes, and an FP8 weight together with its scales. --parts lists all tensors instead. */
static void print_tensors(apr_report *r, const apr_model *model, const model_facts *facts, const apr_show_options *options,
                          const apr_pattern *filter)
{
    char text[SCHEME_TEXT];

    apr_report_table(r, model->n_tensors > 0 ? "Tensors" : NULL, NULL, tensor_columns, N_TENSOR_COLUMNS);
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const tensor = &model->tensors[i], *const matrix = options->parts ? NULL : facts->matrices[i];
        if (matrix != NULL && matrix->packing->codes != tensor) continue;
        if (!apr_is_shown(filter, matrix != NULL ? matrix->name : tensor->name)) continue;
        if (facts->scaled[i] != NULL && !options->parts) continue;
        const char *const fp8 = options->parts ? NULL : fp8_scheme(tensor, text);
        if (matrix != NULL) report_tensor(r, matrix, matrix->packing->scheme, matrix_bytes(matrix));
        else if (fp8 != NULL) report_tensor(r, tensor, fp8, tensor->n_bytes + tensor->scale->n_bytes);
        else report_tensor(r, tensor, apr_dtypes[tensor->dtype].name, tensor->n_bytes);
    }
    apr_report_close(r);
}

static apr_status report_model(const apr_model *model, const apr_show_options *options, const apr_pattern *filter, apr_answer *answer,
                               apr_error *err)
{
    model_facts facts;
    apr_report r;

    APR_TRY(count_model(model, &facts, err));
    apr_report_start(&r, answer, err);
    report_header(&r, model, &facts);
    report_hparams(&r, model);
    report_vocab(&r, model);
    if (options->metadata) report_metadata(&r, &model->kv);
    report_attachments(&r, model);
    report_types(&r, model, &facts);
    if (options->tensors && answer->json) put_tensors(&r, model, &facts, filter);
    else if (options->tensors) print_tensors(&r, model, &facts, options, filter);
    free(facts.matrices);
    return apr_report_end(&r);
}

/* --- the verb --- */

static const apr_option option_table[] = {
    {"tensors", 0, APR_OPTION_FLAG, NULL, "yes", "leave out the list of tensors", APR_TO(apr_show_options, tensors)},
    {"metadata", 0, APR_OPTION_FLAG, NULL, "yes", "leave out the list of metadata keys", APR_TO(apr_show_options, metadata)},
    {"parts", 0, APR_OPTION_FLAG, NULL, NULL, "list each tensor of packed matrices (GPTQ, AWQ, ...)", APR_TO(apr_show_options, parts)},
    {"filter", 0, APR_OPTION_STRING, "REGEX", NULL, "list only tensors whose names match REGEX", APR_TO(apr_show_options, filter)},
    {0},
};

/* Tries the filter on all names before anything is printed: an expression that takes too long on a name is an error. */
static apr_status try_filter(const apr_pattern *filter, const apr_model *model, apr_error *err)
{
    bool found;
    if (filter == NULL) return APR_OK;
    for (size_t i = 0; i < model->n_tensors; i++) APR_TRY(apr_pattern_find(filter, model->tensors[i].name, &found, err));
    for (size_t i = 0; i < model->n_packings; i++) APR_TRY(apr_pattern_find(filter, model->packings[i].name, &found, err));
    return APR_OK;
}

/* A GGUF states that it is an imatrix. The older format (.dat) has no magic: a file is one if it is not a model but reads as an imatrix. */
static bool is_imatrix(const apr_model *model, const char *path, apr_status opened)
{
    apr_imatrix imatrix = {0};
    apr_str type;

    if (opened == APR_OK) return apr_kv_get_string(&model->kv, "general.type", &type) && apr_str_is(type, "imatrix");
    if (opened == APR_E_IO || opened == APR_E_MEMORY) return false;
    const bool is_dat = apr_imatrix_open(&imatrix, path, false, NULL) == APR_OK && imatrix.is_legacy;
    apr_imatrix_close(&imatrix);
    return is_dat;
}

static apr_status show_imatrix(const apr_call *call, const char *path, const apr_pattern *wanted, apr_error *err)
{
    apr_imatrix imatrix;

    APR_TRY(apr_imatrix_open(&imatrix, path, false, err));
    const apr_status status = apr_imatrix_show(call, &imatrix, wanted, err);
    apr_imatrix_close(&imatrix);
    return status;
}

static apr_status show_model(const apr_call *call, const char *path, const apr_pattern *wanted, apr_error *err)
{
    const apr_show_options *const options = call->options;
    char text[4096];
    const char *const config = apr_config_only_path(path, text, sizeof text);
    apr_error own = {0};
    apr_model model;

    if (config != NULL && !call->answer->json) printf("%s has no weights; this is from its config.json:\n", apr_printable(path));
    apr_status status = apr_model_open(&model, config != NULL ? config : path, &own);
    if (config == NULL && is_imatrix(&model, path, status)) {
        apr_model_close(&model);
        return show_imatrix(call, path, wanted, err);
    }
    status = status == APR_OK ? try_filter(wanted, &model, err) : apr_fail(err, status, "%s", own.text);
    if (status == APR_OK) status = report_model(&model, options, wanted, call->answer, err);
    apr_model_close(&model);
    return status;
}

static apr_status show_file(const apr_call *call, const char *path, apr_error *err)
{
    const apr_show_options *const options = call->options;
    const apr_pattern *wanted = NULL;
    apr_arena arena = {0};

    apr_status status = APR_OK;
    if (options->filter != NULL) status = apr_pattern_compile(&wanted, "--filter", options->filter, APR_PATTERN_OF_USER, &arena, err);
    if (status == APR_OK)
        status = apr_is_adapter(path) ? apr_show_adapter(path, options, wanted, call->answer, err) : show_model(call, path, wanted, err);
    apr_arena_close(&arena);
    return status;
}

static apr_status run_show(const apr_call *call, apr_error *err) { return apr_each_file(call, show_file, err); }

static const char *const examples[] = {"aprconv show model.gguf", "aprconv show Qwen2.5-7B/ --no-metadata --filter 'layers\\.0\\.'",
                                       "aprconv show model.apr --json | jq .hyperparameters", NULL};
const apr_command apr_show_command = {
    .verb = "show",
    .operands = "FILE...",
    .min_operands = 1,
    .max_operands = APR_ANY_OPERANDS,
    .summary = "show what is in a model (or an adapter, an imatrix): header, hyperparameters, tokenizer, metadata, tensors",
    .options = option_table,
    .options_bytes = sizeof(apr_show_options),
    .examples = examples,
    .run = run_show};
const apr_command apr_info_command = {.verb = "info",
                                      .operands = "FILE...",
                                      .min_operands = 1,
                                      .max_operands = APR_ANY_OPERANDS,
                                      .summary = "the same as show",
                                      .options = option_table,
                                      .options_bytes = sizeof(apr_show_options),
                                      .run = run_show};
