/* diff.c - `aprconv diff`: how two models differ, across formats, naming schemes and types (runtime/check/diff.h). */
#include "runtime/check/diff.h"
#include "convert/naming.h"
#include "formats/tensor/sink.h"
#include "tools/report/meter.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/show/kind_names.h"
#include "tools/verbs/show/kv_text.h"
#include "tools/verbs/verbs.h"

#include <math.h>
#include <string.h>

static void report_model(apr_report *r, const char *letter, const char *key, const apr_model *model)
{
    char path[512];

    apr_report_print(r, "%s%s%s  %s: %s, %zu tensor%s%s\n", apr_bold(stdout), letter, apr_plain(stdout),
                     apr_clean_text(path, sizeof path, model->path, strlen(model->path)), apr_format_name(model->format), model->n_tensors,
                     model->n_tensors == 1 ? "" : "s",
                     model->naming == APR_NAMING_GGML ? ", llama.cpp's tensor names, which are unknown for this family" : "");
    apr_report_open(r, key, '{');
    apr_report_member(r, "path", apr_as_text(model->path));
    apr_report_member(r, "container", apr_as_text(apr_format_name(model->format)));
    apr_report_member(r, "n_tensors", apr_as_uint(model->n_tensors));
    apr_report_shut(r, '}');
}

/* --- facts: hyperparameters, tokenizer, metadata, files --- */

static const char *const topics[] = {[APR_DIFF_HYPERPARAMETER] = "hyperparameter",
                                     [APR_DIFF_TOKENIZER] = "tokenizer",
                                     [APR_DIFF_METADATA] = "metadata",
                                     [APR_DIFF_FILE] = "file"};

/* A fact's texts, escaped and shortened. */
typedef struct fact_text {
    char name[256], a[APR_KV_TEXT], b[APR_KV_TEXT];
} fact_text;

/* Printers by apr_fact_kind; each writes at most APR_KV_TEXT bytes. */
static void count_text(const apr_fact_value *v, char *text) { apr_count_text(text, v->number); }
static void bytes_text(const apr_fact_value *v, char *text) { apr_size_text(text, (uint64_t)v->number); }
static void id_text(const apr_fact_value *v, char *text) { snprintf(text, APR_KV_TEXT, "%lld", (long long)v->number); }
static void real_text(const apr_fact_value *v, char *text) { snprintf(text, APR_KV_TEXT, "%.7g", v->real); }
static void bool_text(const apr_fact_value *v, char *text) { snprintf(text, APR_KV_TEXT, "%s", v->number != 0 ? "yes" : "no"); }
static void rope_text(const apr_fact_value *v, char *text) { snprintf(text, APR_KV_TEXT, "%s", apr_rope_name((apr_rope_kind)v->number)); }
static void layer_text(const apr_fact_value *v, char *text) { snprintf(text, APR_KV_TEXT, "%s", apr_layer_kind_name((uint8_t)v->number)); }
static void vocab_text(const apr_fact_value *v, char *text)
{
    snprintf(text, APR_KV_TEXT, "%s", apr_vocab_kind_name((apr_vocab_kind)v->number));
}
static void key_text(const apr_fact_value *v, char *text) { apr_kv_text(v->kv, text); }
static void plain_text(const apr_fact_value *v, char *text)
{
    apr_short_text(text, APR_KV_TEXT, v->text.text, v->text.n_bytes, APR_VALUE_COLUMNS);
}

static void (*const texts[])(const apr_fact_value *v, char *text) = {
    [APR_FACT_COUNT] = count_text, [APR_FACT_ID] = id_text,       [APR_FACT_REAL] = real_text,   [APR_FACT_BOOL] = bool_text,
    [APR_FACT_TEXT] = plain_text,  [APR_FACT_ROPE] = rope_text,   [APR_FACT_LAYER] = layer_text, [APR_FACT_VOCAB] = vocab_text,
    [APR_FACT_KV] = key_text,      [APR_FACT_BYTES] = bytes_text,
};

static void value_text(const apr_fact_value *v, apr_diff_topic topic, char text[APR_KV_TEXT])
{
    const bool may_be_absent = topic == APR_DIFF_METADATA || topic == APR_DIFF_FILE; /* other topics have no value instead */

    if (v->kind != APR_FACT_NONE) texts[v->kind](v, text);
    else snprintf(text, APR_KV_TEXT, "%s", may_be_absent ? "absent" : "none");
}

static void put_fact_text(const apr_fact_diff *fact, fact_text *text)
{
    apr_short_text(text->name, sizeof text->name, fact->name.text, fact->name.n_bytes, 64);
    value_text(&fact->a, fact->topic, text->a);
    value_text(&fact->b, fact->topic, text->b);
    /* the difference is after the part that is shown */
    if (fact->a.kind == APR_FACT_TEXT && strcmp(text->a, text->b) == 0) snprintf(text->b, sizeof text->b, "begins the same");
}

static void report_facts(apr_report *r, const apr_model_diff *diff)
{
    static const apr_column columns[] = {{"", .key = "topic"}, {"", .key = "name"}, {"A", .key = "a"}, {"B", .key = "b"}};

    if (diff->n_facts > 0) apr_report_print(r, "\n");
    apr_report_table(r, diff->n_facts > 0 ? "" : NULL, "differences", columns, 4);
    for (size_t i = 0; i < diff->n_facts; i++) {
        fact_text text;
        put_fact_text(&diff->facts[i], &text);
        const char *const cells[] = {topics[diff->facts[i].topic], text.name, text.a, text.b};
        apr_report_row(r);
        for (size_t k = 0; k < 4; k++) apr_report_cell(r, apr_as_text(cells[k]), "%s", cells[k]);
    }
    apr_report_close(r);
}

/* Equal values and types but other bytes: a zero's sign, or different codes for the same value. */
static bool has_same_values_in_one_type(const apr_tensor_diff *pair)
{
    const bool has_same_values = pair->has_metrics && !pair->same_bytes && pair->metrics.max_at < 0 && pair->metrics.n_nonfinite == 0;
    return has_same_values && pair->a->dtype == pair->b->dtype && pair->a->scale == NULL && pair->b->scale == NULL && !pair->as_library;
}

static void cell(apr_report *r, const char *text) { apr_report_cell(r, apr_as_absent(), "%s", text); }

/* In text five cells: largest error and its index, SNR, cosine, note. */
static void report_metrics(apr_report *r, const apr_tensor_diff *pair)
{
    const apr_metrics *const m = &pair->metrics;
    const apr_json_value none = apr_as_absent();
    const bool is_equal = m->max_at < 0;

    apr_report_member(r, "max_error", apr_as_real(m->max_error));
    apr_report_member(r, "max_error_at", apr_as_int(m->max_at));
    apr_report_member(r, "max_error_over_rms", apr_as_real(apr_diff_relative_max(m)));
    apr_report_member(r, "rmse", apr_as_real(apr_metrics_rmse(m)));
    apr_report_member(r, "snr_db", apr_as_real(apr_metrics_snr_db(m)));
    apr_report_member(r, "cosine", apr_as_real(apr_metrics_cosine(m)));
    apr_report_member(r, "n_nonfinite", apr_as_int(m->n_nonfinite));
    apr_report_cell(r, none, is_equal ? "-" : "%.3g", (double)m->max_error);
    apr_report_cell(r, none, is_equal ? "-" : "%lld", (long long)m->max_at);
    apr_report_cell(r, none, is_equal ? "equal" : "%.1f", apr_metrics_snr_db(m));
    apr_report_cell(r, none, is_equal ? "-" : "%.6f", apr_metrics_cosine(m));
    if (m->n_nonfinite > 0) apr_report_cell(r, none, "%lld not finite", (long long)m->n_nonfinite);
    else cell(r, pair->as_library ? "rounded as its library does" : has_same_values_in_one_type(pair) ? "other bytes" : "");
}

/* The same five cells for tensors without metrics. */
static void report_note(apr_report *r, const apr_tensor_diff *pair)
{
    const bool in_both = pair->a != NULL && pair->b != NULL;
    char dims_a[128], dims_b[128];

    for (int i = 0; i < 4; i++) cell(r, !in_both ? "" : i == 2 && pair->same_bytes ? "same" : "-");
    if (in_both && !pair->same_dims)
        apr_report_cell(r, apr_as_absent(), "%s against %s", apr_dims_text(pair->a, dims_a, sizeof dims_a),
                        apr_dims_text(pair->b, dims_b, sizeof dims_b));
    else cell(r, in_both && !pair->same_bytes ? "other bytes" : "");
}

static void report_tensor(apr_report *r, const char *key, const apr_tensor *tensor)
{
    cell(r, tensor != NULL ? apr_dtypes[tensor->dtype].name : "absent");
    if (tensor == NULL) {
        apr_report_member(r, key, apr_as_null());
        return;
    }
    apr_report_open(r, key, '{');
    apr_report_member(r, "dtype", apr_as_text(apr_dtypes[tensor->dtype].name));
    apr_report_open(r, "shape", '[');
    for (int i = 0; i < tensor->rank; i++) apr_report_member(r, NULL, apr_as_int(tensor->dims[i]));
    apr_report_shut(r, ']');
    apr_report_shut(r, '}');
}

static void report_pair(apr_report *r, const apr_tensor_diff *pair)
{
    const char *const name = pair->a != NULL ? pair->a->name : pair->b->name;

    apr_report_row(r);
    apr_report_cell(r, apr_as_text(name), "%s", name);
    report_tensor(r, "a", pair->a);
    report_tensor(r, "b", pair->b);
    apr_report_member(r, "same_bytes", apr_as_bool(pair->same_bytes));
    apr_report_member(r, "differs", apr_as_bool(pair->differs));
    if (pair->as_library) apr_report_member(r, "as_library", apr_as_bool(true));
    if (pair->has_metrics) report_metrics(r, pair);
    else report_note(r, pair);
}

/* In JSON all of them. */
static void report_tensors(apr_report *r, const apr_model_diff *diff, bool all)
{
    static const apr_column columns[] = {
        {"tensor", .key = "name"},       {"A"}, {"B"}, {"max error", true}, {"at", true, .drops = true}, {"SNR dB", true},
        {"cosine", true, .drops = true}, {""}};
    size_t n_shown = 0;

    for (size_t i = 0; i < diff->n_tensors; i++) n_shown += all || !apr_tensor_diff_has_same_values(&diff->tensors[i]);
    if (n_shown > 0) apr_report_print(r, "\n");
    apr_report_table(r, n_shown > 0 ? "" : NULL, "tensors", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < diff->n_tensors; i++)
        if (all || r->json != NULL || !apr_tensor_diff_has_same_values(&diff->tensors[i])) report_pair(r, &diff->tensors[i]);
    apr_report_close(r);
}

/* "the same values; 11 tensors have another type (bf16, f32)" */
static void print_same_values(const apr_model_diff *diff)
{
    bool is_there[APR_DTYPE_COUNT] = {false};
    const char *separator = " (";
    size_t n = 0;

    for (size_t i = 0; i < diff->n_tensors; i++) {
        const apr_tensor_diff *const pair = &diff->tensors[i];
        if (pair->a->dtype == pair->b->dtype) continue;
        is_there[pair->a->dtype] = is_there[pair->b->dtype] = true;
        n++;
    }
    printf("A and B have the same values");
    if (n > 0) printf("; %zu tensor%s another type", n, n == 1 ? " has" : "s have");
    else printf(" in other bytes");
    for (int d = 0; d < APR_DTYPE_COUNT && n > 0; d++) {
        if (!is_there[d]) continue;
        printf("%s%s", separator, apr_dtypes[d].name);
        separator = ", ";
    }
    printf("%s\n", n > 0 ? ")" : "");
}

static void print_summary(const apr_model_diff *diff)
{
    const size_t n_both = diff->n_tensors - diff->n_only_a - diff->n_only_b, n_other = n_both - diff->n_same_bytes - diff->n_same_values;

    size_t n_one_type = 0;
    for (size_t i = 0; i < diff->n_tensors; i++) n_one_type += has_same_values_in_one_type(&diff->tensors[i]);
    const size_t n_other_type = diff->n_same_values - n_one_type;
    printf("\n%zu tensor%s in both: %zu with the same bytes", n_both, n_both == 1 ? "" : "s", diff->n_same_bytes);
    if (n_other_type > 0) printf(", %zu with the same values in another type", n_other_type);
    if (diff->n_as_library > 0) printf(" (%zu as the checkpoint's library rounds products of code and scale)", diff->n_as_library);
    if (n_one_type > 0) printf(", %zu with the same values in other bytes of the same type", n_one_type);
    if (diff->n_close > 0) printf(", %zu within the tolerance", diff->n_close);
    if (n_other > diff->n_close) printf(", %zu different", n_other - diff->n_close);
    if (diff->n_only_a > 0) printf("; %zu only in A", diff->n_only_a);
    if (diff->n_only_b > 0) printf("; %zu only in B", diff->n_only_b);
    if (diff->n_facts > 0) printf("; %zu other difference%s", diff->n_facts, diff->n_facts == 1 ? "" : "s");
    if (diff->same_metadata != NULL) {
        char clean[512];
        printf("\nmetadata in both: %s", apr_clean_text(clean, sizeof clean, diff->same_metadata, strlen(diff->same_metadata)));
    }
    printf("\n");
    if (!apr_diff_is_same(diff) && apr_diff_has_same_values(diff)) print_same_values(diff);
    else
        printf("%s\n", !apr_diff_is_same(diff) ? "A and B differ"
                       : diff->n_close > 0     ? "A and B are the same within the tolerance"
                                               : "A and B are the same model");
}

static apr_status report_diff(const apr_model_diff *diff, bool all, apr_answer *answer, apr_error *err)
{
    apr_report r;

    apr_report_start(&r, answer, err);
    apr_report_member(&r, "same", apr_as_bool(apr_diff_is_same(diff)));
    apr_report_member(&r, "same_values", apr_as_bool(apr_diff_has_same_values(diff)));
    report_model(&r, "A", "a", diff->a);
    report_model(&r, "B", "b", diff->b);
    apr_report_member(&r, "n_same_bytes", apr_as_uint(diff->n_same_bytes));
    apr_report_member(&r, "n_same_values", apr_as_uint(diff->n_same_values));
    apr_report_member(&r, "n_differing", apr_as_uint(diff->n_differing));
    report_facts(&r, diff);
    report_tensors(&r, diff, all);
    if (r.json == NULL && r.status == APR_OK) print_summary(diff);
    return apr_report_end(&r);
}

/* --- the command: opens both models, makes canonical views, compares them --- */

typedef struct diff_options {
    bool metadata, all, exact;
    double tolerance; /* NaN: bytes and types must be the same */
} diff_options;

static const apr_option option_table[] = {
    {"tolerance", 0, APR_OPTION_REAL, "X", NULL,
     "treat tensors as equal if no value differs by more than X times the root mean square of A's; types may differ", .min = 0, .max = 1e30,
     APR_TO(diff_options, tolerance)},
    {"metadata", 0, APR_OPTION_FLAG, NULL, "yes", "do not compare metadata keys and small files (compared only within one format)",
     APR_TO(diff_options, metadata)},
    {"exact", 0, APR_OPTION_FLAG, NULL, NULL, "equal values in another type or in other bytes also count as a difference",
     APR_TO(diff_options, exact)},
    {"all", 'a', APR_OPTION_FLAG, NULL, NULL, "also list equal tensors", APR_TO(diff_options, all)},
    {0},
};

static apr_status compare(const apr_call *call, const apr_model *a, const apr_model *b, apr_error *err)
{
    const diff_options *const options = call->options;
    apr_model_diff diff;
    apr_meter meter;

    const apr_progress progress = apr_meter_start(&meter, call->quiet);
    apr_status status = apr_diff_models(
        &diff, a, b, &(apr_diff_options){.no_metadata = !options->metadata, .tolerance = options->tolerance}, &progress, err);
    apr_meter_end(&meter);
    if (status == APR_OK) status = report_diff(&diff, options->all, call->answer, err);
    const bool is_same = apr_diff_is_same(&diff) || (!options->exact && apr_diff_has_same_values(&diff));
    if (status == APR_OK && !is_same) status = APR_E_NO; /* the answer itself says why */
    apr_diff_close(&diff);
    return status;
}

/* The view to compare. If only one model comes from a GGUF, its rows are put into a checkpoint's order. Blocks that cannot be split there
 * keep their place, and are reported as different. */
static apr_status open_view(apr_model *view, const apr_model *source, const apr_model *other, apr_error *err)
{
    apr_model aligned;

    APR_TRY(apr_canonical(view, source, err));
    if (source->origin.format == other->origin.format || source->origin.format != APR_FORMAT_GGUF) return APR_OK;
    apr_status status = apr_canonical(&aligned, source, err);
    if (status == APR_OK) status = apr_view_as_checkpoint(&aligned, err);
    apr_model *const useless = status == APR_OK ? view : &aligned;
    apr_model_close(useless);
    if (status == APR_OK) *view = aligned;
    return status == APR_E_UNSUPPORTED ? APR_OK : status;
}

static apr_status run_diff(const apr_call *call, apr_error *err)
{
    apr_model source_a, source_b = {0}, a = {0}, b = {0};

    apr_status status = apr_model_open(&source_a, call->operands[0], err);
    if (status == APR_OK) status = apr_model_open(&source_b, call->operands[1], err);
    if (status == APR_OK) status = open_view(&a, &source_a, &source_b, err);
    if (status == APR_OK) status = open_view(&b, &source_b, &source_a, err);
    if (status == APR_OK) status = compare(call, &a, &b, err);
    apr_model_close(&a);
    apr_model_close(&b);
    apr_model_close(&source_a);
    apr_model_close(&source_b);
    return status;
}

static const char *const examples[] = {"aprconv diff Qwen2.5-7B/ model.apr", "aprconv diff model-bf16.gguf model-q8_0.apr --tolerance 0.05",
                                       NULL};
const apr_command apr_diff_command = {
    .verb = "diff",
    .operands = "A B",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "compare two models, even of different formats: hyperparameters, tokenizer, metadata, tensors, values",
    .options = option_table,
    .options_bytes = sizeof(diff_options),
    .examples = examples,
    .run = run_diff};
