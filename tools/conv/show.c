/* show.c - aprconv show: opens a model, counts what is in it, and prints it as text or JSON. */
#include "tools/conv/show.h"

#include "formats/tensor/adapter.h"
#include "formats/tensor/imatrix.h"
#include "formats/tensor/sink.h"
#include "tools/cli/model_paths.h"
#include "tools/conv/each_file.h"
#include "tools/report/text.h"
#include "tools/verbs/run/imatrix_print.h"

#include <stdlib.h>
#include <string.h>

static const apr_option option_table[] = {
    {"tensors", 0, APR_OPTION_FLAG, NULL, "yes", "leave out the list of tensors", APR_TO(apr_show_options, tensors)},
    {"metadata", 0, APR_OPTION_FLAG, NULL, "yes", "leave out the list of metadata keys", APR_TO(apr_show_options, metadata)},
    {"parts", 0, APR_OPTION_FLAG, NULL, NULL, "list each tensor of packed matrices (GPTQ, AWQ, ...)", APR_TO(apr_show_options, parts)},
    {"filter", 0, APR_OPTION_STRING, "REGEX", NULL, "list only tensors whose names match REGEX", APR_TO(apr_show_options, filter)},
    {0},
};

uint64_t apr_matrix_bytes(const apr_tensor *matrix) { return apr_packing_bytes(matrix->packing, matrix->packing->rows); }

static void add_to(apr_type_share *share, const apr_tensor *tensor, uint64_t n_bytes)
{
    share->n_tensors++;
    share->n_weights += apr_tensor_elems(tensor);
    share->n_bytes += n_bytes;
}

/* The share of a scheme; of "others" if the table is full. */
static apr_type_share *share_of(apr_model_facts *facts, const char *scheme)
{
    size_t i = 0;
    while (i < facts->n_schemes && strcmp(facts->schemes[i].scheme, scheme) != 0) i++;
    if (i == APR_MAX_SCHEMES) facts->schemes[--i].scheme = "others";
    if (i == facts->n_schemes) facts->schemes[facts->n_schemes++].scheme = scheme;
    return &facts->schemes[i].share;
}

static void count_matrix(const apr_model *model, const apr_tensor *matrix, apr_model_facts *facts)
{
    const apr_packing *const p = matrix->packing;

    for (size_t i = 0; i < p->n_parts; i++) facts->matrices[p->parts[i] - model->tensors] = matrix;
    add_to(share_of(facts, p->scheme), matrix, apr_matrix_bytes(matrix));
    facts->n_parts += p->n_parts;
    facts->n_weights += apr_tensor_elems(matrix);
}

const char *apr_fp8_scheme(const apr_tensor *tensor, char text[APR_SCHEME_TEXT])
{
    const bool is_fp8 = tensor->dtype == APR_F8_E4M3 || tensor->dtype == APR_F8_E5M2;
    if (!is_fp8 || tensor->scale == NULL) return NULL;
    const long long rows = (long long)tensor->scale_rows, columns = (long long)tensor->scale_columns;
    const bool is_one = apr_tensor_elems(tensor->scale) == 1 && rows == apr_tensor_rows(tensor) && columns == apr_tensor_columns(tensor);
    const char *const type = tensor->dtype == APR_F8_E4M3 ? "FP8 E4M3" : "FP8 E5M2";

    if (is_one) snprintf(text, APR_SCHEME_TEXT, "%s, one scale", type);
    else if (rows > 1) snprintf(text, APR_SCHEME_TEXT, "%s, blocks of %lld x %lld", type, rows, columns);
    else if (columns < apr_tensor_columns(tensor)) snprintf(text, APR_SCHEME_TEXT, "%s, groups of %lld", type, columns);
    else snprintf(text, APR_SCHEME_TEXT, "%s, a scale for each row", type);
    return text;
}

/* Counts an FP8 weight with its scales. Scales that several weights share are counted once. */
static bool count_fp8(const apr_model *model, const apr_tensor *tensor, apr_model_facts *facts)
{
    char text[APR_SCHEME_TEXT];
    const size_t n_before = facts->n_schemes;

    if (apr_fp8_scheme(tensor, text) == NULL) return false;
    apr_type_share *const share = share_of(facts, text);
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

apr_status apr_model_count(const apr_model *model, apr_model_facts *facts, apr_error *err)
{
    *facts = (apr_model_facts){.matrices = calloc(2 * model->n_tensors + 1, sizeof *facts->matrices)};
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
        char text[APR_SCHEME_TEXT];
        if (facts->matrices[i] != NULL || facts->scaled[i] != NULL || apr_fp8_scheme(tensor, text) != NULL) continue;
        add_to(&facts->types[tensor->dtype], tensor, tensor->n_bytes);
        facts->n_weights += apr_tensor_elems(tensor) - (tensor->scale != NULL ? apr_tensor_elems(tensor->scale) : 0);
    }
    return APR_OK;
}

double apr_bits_per_weight(uint64_t n_bytes, int64_t n_weights) { return n_weights > 0 ? 8.0 * (double)n_bytes / (double)n_weights : 0.0; }

const char *apr_naming_name(apr_naming naming)
{
    static const char *const names[] = {[APR_NAMING_HF] = "hf", [APR_NAMING_GGML] = "ggml", [APR_NAMING_META] = "meta"};
    return names[naming];
}

const char *apr_rope_name(apr_rope_kind kind) { return kind == APR_ROPE_PLAIN ? "none" : apr_rope_names[kind]; }

const char *apr_layer_kind_name(uint8_t kind)
{
    static const char *const names[] = {
        [APR_LAYER_FULL] = "full",   [APR_LAYER_SLIDING] = "sliding",  [APR_LAYER_LINEAR] = "linear", [APR_LAYER_CHUNKED] = "chunked",
        [APR_LAYER_MAMBA] = "mamba", [APR_LAYER_CONV] = "convolution", [APR_LAYER_NONE] = "none"};
    return names[kind];
}

const char *apr_ffn_kind_name(uint8_t kind)
{
    static const char *const names[] = {[APR_FFN_DENSE] = "dense", [APR_FFN_EXPERTS] = "experts", [APR_FFN_NONE] = "none"};
    return names[kind];
}

const char *apr_position_name(uint8_t has_none) { return has_none ? "none" : "rotary"; }

const char *apr_vocab_kind_name(apr_vocab_kind kind)
{
    static const char *const names[] = {[APR_VOCAB_NONE] = "none",
                                        [APR_VOCAB_BPE] = "byte-level BPE",
                                        [APR_VOCAB_SPM] = "SentencePiece BPE",
                                        [APR_VOCAB_WPM] = "WordPiece",
                                        [APR_VOCAB_UGM] = "Unigram"};
    return names[kind];
}

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
    if (status == APR_OK && call->answer->json) status = apr_show_json(&model, options, wanted, &call->answer->body, err);
    else if (status == APR_OK) status = apr_show_text(&model, options, wanted, err);
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
