/* diff_verb.c - aprconv diff: opens both models, makes canonical views, compares them and prints the differences. */
#include "tools/verbs/convert/diff_verb.h"

#include "convert/naming.h"
#include "tools/report/meter.h"
#include "tools/verbs/verbs.h"

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
    if (status == APR_OK && call->answer->json) apr_diff_json(&diff, &call->answer->body);
    else if (status == APR_OK) status = apr_diff_print(&diff, options->all, err);
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
