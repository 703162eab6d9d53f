/* check.c - aprconv check: prints what runtime/check/integrity.h found in a file. */
#include "tools/verbs/verbs.h"

#include "runtime/check/integrity.h"
#include "runtime/template/chat.h"
#include "tools/engine/quantize/admission_of_file.h"
#include "tools/report/meter.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/show/each_file.h"

#include <string.h>

static const char *const kind_names[] = {
    [APR_FOUND_CHECKSUM] = "checksum", [APR_FOUND_ATTACHMENT] = "attached file", [APR_FOUND_NOT_FINITE] = "not finite"};

enum { RESULT_TEXT = 256, LABEL_COLUMNS = 9 };

/* Returns text. */
static char *result_text(const apr_integrity_result *f, char text[RESULT_TEXT])
{
    if (f->kind == APR_FOUND_ATTACHMENT) snprintf(text, RESULT_TEXT, "%s", f->text);
    else if (f->kind == APR_FOUND_NOT_FINITE)
        snprintf(text, RESULT_TEXT, "%lld of %lld values, the first at index %lld", (long long)f->n, (long long)f->n_values,
                 (long long)f->first);
    else if (f->name != NULL)
        snprintf(text, RESULT_TEXT, "the file states CRC %08x, its bytes give %08x", (unsigned)f->stated, (unsigned)f->actual);
    else snprintf(text, RESULT_TEXT, "the checksum at the end of the file does not match its bytes");
    return text;
}

/* In text: all tensors that the family's program needs are there, or the first objections. */
static void report_admission(apr_report *r, const apr_model *model, const apr_admission *a)
{
    const apr_json_value none = apr_as_text(NULL);

    if (!a->is_checked) return;
    if (a->n == 0)
        apr_report_fact(r, NULL, none, "tensors", "complete for a %s model of %lld layers", model->hparams.architecture,
                        (long long)model->hparams.num_layers);
    for (size_t i = 0; i < a->n && i < APR_MAX_OBJECTIONS; i++)
        apr_report_fact(r, NULL, none, i == 0 ? "tensors" : "", "%s", a->first[i].text);
    if (a->n > APR_MAX_OBJECTIONS) apr_report_fact(r, NULL, none, "", "and %zu more", a->n - APR_MAX_OBJECTIONS);
}

static void put_admission(apr_report *r, const apr_admission *a)
{
    static const char *const keys[] = {[APR_TENSOR_MISSING] = "missing",
                                       [APR_TENSOR_MISSHAPEN] = "misshapen",
                                       [APR_TENSOR_EXTRA_LAYER] = "beyond_last_layer",
                                       [APR_TENSOR_UNKNOWN] = "unknown",
                                       [APR_TENSOR_TYPE_NOT_RUN] = "not_run"};

    if (r->json == NULL) return;
    apr_json_open(r->json, "tensors", '{');
    apr_report_member(r, "judged", apr_as_bool(a->is_checked));
    for (int kind = 0; kind < APR_N_OBJECTIONS; kind++) apr_report_member(r, keys[kind], apr_as_uint(a->n_of[kind]));
    apr_json_open(r->json, "objections", '[');
    for (size_t i = 0; i < a->n && i < APR_MAX_OBJECTIONS; i++) apr_report_member(r, NULL, apr_as_text(a->first[i].text));
    apr_json_close(r->json, ']');
    apr_json_close(r->json, '}');
}

static void report_checksums(apr_report *r, const apr_model *model, const apr_integrity *found)
{
    static const char *const footers[] = {[APR_FOOTER_GOOD] = "good", [APR_FOOTER_MISSING] = "missing", [APR_FOOTER_BAD] = "bad"};
    const bool is_apr = model->format == APR_FORMAT_APR;
    const char *const label = "checksums", *const footer = is_apr ? footers[found->footer] : "none";
    const apr_json_value n_stated = apr_as_uint(found->n_stated);
    char missing[96];

    if (!is_apr) apr_report_fact(r, "n_checksums", n_stated, label, "%s has none", apr_format_name(model->format));
    else if (found->n_stated == 0) apr_report_fact(r, "n_checksums", n_stated, label, "none for tensors; the file's own is %s", footer);
    else
        apr_report_fact(r, "n_checksums", n_stated, label, "%zu of %zu tensors good; the file's own is %s", found->n_good, found->n_stated,
                        footer);
    apr_report_member(r, "n_checksums_good", apr_as_uint(found->n_good));
    apr_report_member(r, "footer", apr_as_text(footer));
    if (apr_apr_missing(model, missing, sizeof missing)[0] != '\0') apr_report_string(r, "missing", "missing", missing);
}

static void report_values(apr_report *r, const apr_integrity *found)
{
    char count[APR_SMALL_TEXT], not_finite[APR_SMALL_TEXT];
    const bool is_good = found->n_nonfinite == 0;

    apr_report_fact(r, "n_values", apr_as_int(found->n_values), "values", "%s decoded, %s%s", apr_count_text(count, found->n_values),
                    is_good ? "all finite" : apr_count_text(not_finite, found->n_nonfinite), is_good ? "" : " not finite");
    apr_report_member(r, "n_nonfinite", apr_as_int(found->n_nonfinite));
}

static void report_turn_end(apr_report *r, const apr_vocab *vocab)
{
    apr_chat_stops stops;
    char clean[256];

    if (apr_chat_stops_of(vocab, &stops, r->json != NULL ? NULL : r->err) != APR_OK || stops.added < 0) return;
    const apr_str token = vocab->tokens[stops.added];
    apr_report_fact(r, "turn_end_id", apr_as_int(stops.added), "chat",
                    "the template ends turns with token %d (%s), which is not a stop id: other programs may not stop there",
                    (int)stops.added, apr_clean_text(clean, sizeof clean, token.text, token.n_bytes));
}

static void report_findings(apr_report *r, const apr_integrity *found)
{
    static const apr_column columns[] = {{NULL}, {NULL, .key = "kind"}, {NULL, .key = "text"}};
    char text[RESULT_TEXT];

    apr_report_table(r, found->n_findings > 0 ? "Problems" : NULL, "findings", columns, 3);
    for (size_t i = 0; i < found->n_findings; i++) {
        const apr_integrity_result *const f = &found->findings[i];
        apr_report_row(r);
        apr_report_cell(r, apr_as_text(NULL), "%s", f->name != NULL ? f->name : "the file");
        apr_report_cell(r, apr_as_text(kind_names[f->kind]), "%s", kind_names[f->kind]);
        apr_report_member(r, f->kind == APR_FOUND_ATTACHMENT ? "file" : "tensor", apr_as_text(f->name));
        apr_report_cell(r, apr_as_text(result_text(f, text)), "%s", text);
    }
    apr_report_close(r);
}

static void print_title(const apr_model *model, const apr_integrity *found)
{
    char path[512], size[APR_SMALL_TEXT];

    printf("%s%s%s: %s, %zu tensor%s, %s\n", apr_bold(stdout), apr_clean_text(path, sizeof path, model->path, strlen(model->path)),
           apr_plain(stdout), apr_format_name(model->format), model->n_tensors, model->n_tensors == 1 ? "" : "s",
           apr_size_text(size, found->file_bytes));
}

static apr_status report(const apr_model *model, const apr_integrity *found, const apr_admission *a, apr_answer *answer, apr_error *err)
{
    apr_report r;

    apr_report_start(&r, answer, err);
    if (!answer->json) print_title(model, found);
    apr_report_lines(&r, LABEL_COLUMNS);
    apr_report_member(&r, "path", apr_as_text(model->path));
    apr_report_member(&r, "container", apr_as_text(apr_format_name(model->format)));
    apr_report_fact(&r, "n_tensors", apr_as_uint(model->n_tensors), "structure", "good: every count, extent, size and name");
    report_admission(&r, model, a);
    report_checksums(&r, model, found);
    report_values(&r, found);
    put_admission(&r, a);
    report_turn_end(&r, &model->vocab);
    apr_report_close(&r);
    report_findings(&r, found);
    return apr_report_end(&r);
}

static apr_status verdict(const apr_model *model, const apr_integrity *r, const apr_admission *a, apr_error *err)
{
    apr_error why = {0};

    if (r->n_of[APR_FOUND_CHECKSUM] > 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: %zu checksum%s not match: the file has changed since it was written, get it again",
                        model->path, r->n_of[APR_FOUND_CHECKSUM], r->n_of[APR_FOUND_CHECKSUM] == 1 ? " does" : "s do");
    if (r->n_of[APR_FOUND_ATTACHMENT] > 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: %zu attached file%s damaged: loaders will fail on %s", model->path,
                        r->n_of[APR_FOUND_ATTACHMENT], r->n_of[APR_FOUND_ATTACHMENT] == 1 ? " is" : "s are",
                        r->n_of[APR_FOUND_ATTACHMENT] == 1 ? "it" : "them");
    if (r->n_of[APR_FOUND_NOT_FINITE] > 0)
        return apr_fail(err, APR_E_NO, "%s: %zu %s values that are not finite", model->path, r->n_of[APR_FOUND_NOT_FINITE],
                        r->n_of[APR_FOUND_NOT_FINITE] == 1 ? "tensor holds" : "tensors hold");
    return apr_admission_refuse(a, model->path, &why) != APR_OK ? apr_fail(err, APR_E_NO, "%s", why.text) : APR_OK;
}

static apr_status check_file(const apr_call *call, const char *path, apr_error *err)
{
    apr_model model;
    apr_integrity r = {0};
    apr_admission admission = {0};
    apr_meter meter;

    apr_status status = apr_model_open(&model, path, err);
    if (status == APR_OK) status = apr_admission_of(&admission, &model, err);
    if (status == APR_OK) {
        const apr_progress progress = apr_meter_start(&meter, call->quiet);
        status = apr_integrity_check(&r, &model, &progress, err);
        apr_meter_end(&meter);
    }
    if (status == APR_OK) status = report(&model, &r, &admission, call->answer, err);
    if (status == APR_OK) status = verdict(&model, &r, &admission, err);
    apr_integrity_close(&r);
    apr_model_close(&model);
    return status;
}

static apr_status run_check(const apr_call *call, apr_error *err) { return apr_each_file(call, check_file, err); }

static const char *const examples[] = {"aprconv check model.apr", "aprconv check Qwen2.5-7B/ --json", NULL};
const apr_command apr_check_command = {.verb = "check",
                                       .operands = "FILE...",
                                       .min_operands = 1,
                                       .max_operands = APR_ANY_OPERANDS,
                                       .summary =
                                           "read all of a model; check its structure, checksums, tensors, and that every value is finite",
                                       .examples = examples,
                                       .run = run_check};
