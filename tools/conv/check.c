/* check.c - aprconv check: prints what runtime/check/integrity.h found in a file. */
#include "tools/conv/check.h"

#include "runtime/check/integrity.h"
#include "runtime/template/chat.h"
#include "tools/conv/each_file.h"
#include "tools/engine/quantize/admission_of_file.h"
#include "tools/report/meter.h"
#include "tools/report/table.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <string.h>

static const char *const kind_names[] = {
    [APR_FOUND_CHECKSUM] = "checksum", [APR_FOUND_ATTACHMENT] = "attached file", [APR_FOUND_NOT_FINITE] = "not finite"};

enum { RESULT_TEXT = 256 };

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

static const char *footer_name(const apr_model *model, const apr_integrity *r)
{
    static const char *const names[] = {[APR_FOOTER_GOOD] = "good", [APR_FOOTER_MISSING] = "missing", [APR_FOOTER_BAD] = "bad"};
    return model->format == APR_FORMAT_APR ? names[r->footer] : "none";
}

static void put_admission(const apr_admission *a, apr_json_text *out)
{
    static const char *const keys[] = {[APR_TENSOR_MISSING] = "missing",
                                       [APR_TENSOR_MISSHAPEN] = "misshapen",
                                       [APR_TENSOR_EXTRA_LAYER] = "beyond_last_layer",
                                       [APR_TENSOR_UNKNOWN] = "unknown",
                                       [APR_TENSOR_TYPE_NOT_RUN] = "not_run"};

    apr_json_open(out, "tensors", '{');
    apr_json_bool(out, "judged", a->is_checked);
    for (int kind = 0; kind < APR_N_OBJECTIONS; kind++) apr_json_uint(out, keys[kind], a->n_of[kind]);
    apr_json_open(out, "objections", '[');
    for (size_t i = 0; i < a->n && i < APR_MAX_OBJECTIONS; i++) apr_json_string(out, NULL, a->first[i].text, strlen(a->first[i].text));
    apr_json_close(out, ']');
    apr_json_close(out, '}');
}

static void put_json(const apr_model *model, const apr_integrity *r, const apr_admission *a, apr_json_text *out)
{
    const char *const container = apr_format_name(model->format);
    char text[RESULT_TEXT], missing[96];
    apr_chat_stops stops;

    apr_json_string(out, "path", model->path, strlen(model->path));
    apr_json_string(out, "container", container, strlen(container));
    apr_json_uint(out, "n_tensors", model->n_tensors);
    apr_json_uint(out, "n_checksums", r->n_stated);
    apr_json_uint(out, "n_checksums_good", r->n_good);
    apr_json_string(out, "footer", footer_name(model, r), strlen(footer_name(model, r)));
    if (apr_apr_missing(model, missing, sizeof missing)[0] != '\0') apr_json_string(out, "missing", missing, strlen(missing));
    apr_json_int(out, "n_values", r->n_values);
    apr_json_int(out, "n_nonfinite", r->n_nonfinite);
    put_admission(a, out);
    if (apr_chat_stops_of(&model->vocab, &stops, NULL) == APR_OK && stops.added >= 0) apr_json_int(out, "turn_end_id", stops.added);
    apr_json_open(out, "findings", '[');
    for (size_t i = 0; i < r->n_findings; i++) {
        const apr_integrity_result *const f = &r->findings[i];
        apr_json_open(out, NULL, '{');
        apr_json_string(out, "kind", kind_names[f->kind], strlen(kind_names[f->kind]));
        if (f->name != NULL) apr_json_string(out, f->kind == APR_FOUND_ATTACHMENT ? "file" : "tensor", f->name, strlen(f->name));
        result_text(f, text);
        apr_json_string(out, "text", text, strlen(text));
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
}

static apr_status print_results(const apr_integrity *r, apr_error *err)
{
    static const apr_column columns[] = {{NULL, false}, {NULL, false}, {NULL, false}};
    char text[RESULT_TEXT];
    apr_table table;

    printf("\n%sProblems%s\n", apr_bold(stdout), apr_plain(stdout));
    apr_table_start(&table, columns, 3);
    for (size_t i = 0; i < r->n_findings; i++) {
        const apr_integrity_result *const f = &r->findings[i];
        apr_table_cell(&table, "%s", f->name != NULL ? f->name : "the file");
        apr_table_cell(&table, "%s", kind_names[f->kind]);
        apr_table_cell(&table, "%s", result_text(f, text));
    }
    return apr_table_print(&table, stdout, 2, err);
}

/* Prints that all tensors which the family's program needs are there, or the first objections. */
static void print_admission(const apr_model *model, const apr_admission *a)
{
    char clean[512];

    if (!a->is_checked) return;
    if (a->n == 0)
        printf("  tensors    complete for a %s model of %lld layers\n", model->hparams.architecture, (long long)model->hparams.num_layers);
    for (size_t i = 0; i < a->n && i < APR_MAX_OBJECTIONS; i++)
        printf("  %s %s\n", i == 0 ? "tensors   " : "          ",
               apr_clean_text(clean, sizeof clean, a->first[i].text, strlen(a->first[i].text)));
    if (a->n > APR_MAX_OBJECTIONS) printf("             and %zu more\n", a->n - APR_MAX_OBJECTIONS);
}

static void print_turn_end(const apr_vocab *vocab, int32_t id)
{
    char clean[256];

    printf("  chat       the template ends turns with token %d (%s), which is not a stop id: other programs may not stop there\n", (int)id,
           apr_clean_text(clean, sizeof clean, vocab->tokens[id].text, vocab->tokens[id].n_bytes));
}

static apr_status print_text(const apr_model *model, const apr_integrity *r, const apr_admission *a, apr_error *err)
{
    apr_chat_stops stops;
    const bool is_apr = model->format == APR_FORMAT_APR;
    char path[512], size[APR_SMALL_TEXT], count[APR_SMALL_TEXT], missing[96];

    printf("%s%s%s: %s, %zu tensor%s, %s\n", apr_bold(stdout), apr_clean_text(path, sizeof path, model->path, strlen(model->path)),
           apr_plain(stdout), apr_format_name(model->format), model->n_tensors, model->n_tensors == 1 ? "" : "s",
           apr_size_text(size, r->file_bytes));
    printf("  structure  good: every count, extent, size and name\n");
    print_admission(model, a);
    if (is_apr && r->n_stated == 0) printf("  checksums  none for tensors; the file's own is %s\n", footer_name(model, r));
    else if (is_apr) printf("  checksums  %zu of %zu tensors good; the file's own is %s\n", r->n_good, r->n_stated, footer_name(model, r));
    else printf("  checksums  %s has none\n", apr_format_name(model->format));
    if (apr_apr_missing(model, missing, sizeof missing)[0] != '\0') printf("  missing    %s\n", missing);
    printf("  values     %s decoded, ", apr_count_text(count, r->n_values));
    if (r->n_nonfinite == 0) printf("all finite\n");
    else printf("%s not finite\n", apr_count_text(count, r->n_nonfinite));
    if (apr_chat_stops_of(&model->vocab, &stops, err) == APR_OK && stops.added >= 0) print_turn_end(&model->vocab, stops.added);
    return r->n_findings > 0 ? print_results(r, err) : APR_OK;
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
    if (status == APR_OK && call->answer->json) put_json(&model, &r, &admission, &call->answer->body);
    else if (status == APR_OK) status = print_text(&model, &r, &admission, err);
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
