/* check.c - aprconv check: checksums and values of every tensor, on all cores; opening has checked the structure already. */
#include "tools/conv/check.h"

#include "formats/apr/apr.h"
#include "formats/base/crc32.h"
#include "formats/base/json.h"
#include "kernels/rows.h"
#include "tools/cli/meter.h"
#include "tools/cli/table.h"
#include "tools/cli/text.h"
#include "tools/conv/row_blocks.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef enum { DAMAGED_CHECKSUM, DAMAGED_FILE, NOT_FINITE, N_FINDING_KINDS } finding_kind;
static const char *const finding_names[] = {[DAMAGED_CHECKSUM] = "checksum", [DAMAGED_FILE] = "attached file", [NOT_FINITE] = "not finite"};

typedef struct finding {
    const char *tensor; /* or the attached file; NULL: the file as a whole */
    finding_kind kind;
    char text[256];
} finding;

typedef struct report {
    const apr_model *model;
    finding *findings; /* room for two a tensor, one an attached file, and one of the file */
    size_t n_findings, n_of[N_FINDING_KINDS];
    size_t n_stated, n_good; /* checksums of tensors */
    apr_footer footer;       /* APR only */
    int64_t n_values, n_nonfinite;
    uint64_t file_bytes;
} report;

static void add_finding(report *r, const char *tensor, finding_kind kind, const char *format, ...) __attribute__((format(printf, 4, 5)));
static void add_finding(report *r, const char *tensor, finding_kind kind, const char *format, ...)
{
    finding *const f = &r->findings[r->n_findings++];
    va_list args;

    *f = (finding){.tensor = tensor, .kind = kind};
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    r->n_of[kind]++;
}

/* The CRC of pieces, put together again, is the CRC of the whole. */
static apr_status crc_of(const apr_tensor *tensor, uint32_t *crc, apr_error *err)
{
    enum { PIECE_BYTES = 4 << 20 };
    const int64_t n_pieces = (int64_t)((tensor->n_bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    uint32_t *const crcs = calloc((size_t)n_pieces + 1, sizeof *crcs);
    if (crcs == NULL) return apr_no_memory(err, "checksums");

#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < n_pieces; i++) {
        const uint64_t left = tensor->n_bytes - (uint64_t)i * PIECE_BYTES;
        crcs[i] = apr_crc32(0, tensor->data + (uint64_t)i * PIECE_BYTES, left < PIECE_BYTES ? left : PIECE_BYTES);
    }
    *crc = 0;
    for (int64_t i = 0; i < n_pieces; i++) {
        const uint64_t left = tensor->n_bytes - (uint64_t)i * PIECE_BYTES;
        *crc = apr_crc32_combine(*crc, crcs[i], left < PIECE_BYTES ? left : PIECE_BYTES);
    }
    free(crcs);
    return APR_OK;
}

static apr_status check_crc(report *r, const apr_tensor *tensor, apr_error *err)
{
    uint32_t stated = 0, actual = 0;

    if (r->model->format != APR_FORMAT_APR || !apr_apr_stated_crc(r->model, tensor->name, &stated)) return APR_OK;
    APR_TRY(crc_of(tensor, &actual, err));
    r->n_stated++;
    if (stated == actual) r->n_good++;
    else add_finding(r, tensor->name, DAMAGED_CHECKSUM, "the file states CRC %08x, its bytes give %08x", stated, actual);
    return APR_OK;
}

/* Counts values that are not finite; *first becomes the index of the first, counted from `base`, when it is smaller. */
static int64_t count_nonfinite(const float *x, int64_t n, int64_t base, int64_t *first)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(x[i])) continue;
        if (base + i < *first) *first = base + i;
        count++;
    }
    return count;
}

static apr_status check_values(report *r, const apr_tensor *tensor, apr_error *err)
{
    const apr_row_blocks blocks = apr_row_blocks_of(tensor);
    int64_t n_bad = 0, first = INT64_MAX;
    bool no_memory = false;

    if (!apr_can_decode(tensor->dtype) || !apr_dtype_is_weights(tensor->dtype)) return APR_OK;
#pragma omp parallel for schedule(dynamic) reduction(+ : n_bad) reduction(min : first) reduction(|| : no_memory)
    for (int64_t i = 0; i < blocks.n_blocks; i++) {
        const int64_t row = i * blocks.rows_per_block, n_rows = apr_block_rows(&blocks, i);
        float *const values = malloc(apr_block_bytes(&blocks));
        no_memory = no_memory || values == NULL;
        if (values == NULL) continue;
        apr_decode_rows(tensor, row, n_rows, values);
        n_bad += count_nonfinite(values, n_rows * blocks.n_columns, row * blocks.n_columns, &first);
        free(values);
    }
    if (no_memory) return apr_no_memory(err, "decoded values");
    r->n_values += apr_tensor_elems(tensor);
    r->n_nonfinite += n_bad;
    if (n_bad > 0)
        add_finding(r, tensor->name, NOT_FINITE, "%lld of %lld values, the first at index %lld", (long long)n_bad,
                    (long long)apr_tensor_elems(tensor), (long long)first);
    return APR_OK;
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), n_ending = strlen(ending);
    return n >= n_ending && strcmp(name + n - n_ending, ending) == 0;
}

/* Opening parses what it needs; the others are found out here, before a loader does. */
static apr_status check_attachment(report *r, const apr_attachment *file, apr_error *err)
{
    apr_error why = {0};
    cJSON *tree = NULL;

    if (ends_with(file->name, ".json")) {
        const apr_status status = apr_json_parse(&tree, file->data, file->n_bytes, file->name, &why);
        cJSON_Delete(tree);
        if (status == APR_E_MEMORY) return apr_no_memory(err, file->name);
        const char *const colon = strstr(why.text, ": "); /* behind the name, which has a column of its own */
        if (status != APR_OK) add_finding(r, file->name, DAMAGED_FILE, "%.250s", colon != NULL ? colon + 2 : why.text);
    } else if (ends_with(file->name, ".jinja") && file->n_bytes > 0) {
        const apr_str text = {(const char *)file->data, file->n_bytes};
        if (!apr_str_is_utf8(text) || memchr(text.text, '\0', text.n_bytes) != NULL) add_finding(r, file->name, DAMAGED_FILE, "is no text");
    }
    return APR_OK;
}

static apr_status check_model(report *r, const apr_progress *progress, apr_error *err)
{
    uint64_t total = 0, done = 0;

    for (size_t i = 0; i < r->model->n_maps; i++) r->file_bytes += r->model->maps[i].n_bytes;
    if (r->model->format == APR_FORMAT_APR) {
        r->footer = apr_apr_check_footer(r->model);
        if (r->footer == APR_FOOTER_BAD)
            add_finding(r, NULL, DAMAGED_CHECKSUM, "the checksum at the end of the file is not that of its bytes");
    }
    for (size_t i = 0; i < r->model->n_attachments; i++) APR_TRY(check_attachment(r, &r->model->attachments[i], err));
    for (size_t i = 0; i < r->model->n_tensors; i++) total += r->model->tensors[i].n_bytes;
    for (size_t i = 0; i < r->model->n_tensors; i++) {
        const apr_tensor *const tensor = &r->model->tensors[i];
        apr_progress_report(progress, done, total, tensor->name);
        APR_TRY(check_crc(r, tensor, err));
        APR_TRY(check_values(r, tensor, err));
        done += tensor->n_bytes;
    }
    return APR_OK;
}

static const char *footer_name(const report *r)
{
    static const char *const names[] = {[APR_FOOTER_GOOD] = "good", [APR_FOOTER_MISSING] = "missing", [APR_FOOTER_BAD] = "bad"};
    return r->model->format == APR_FORMAT_APR ? names[r->footer] : "none";
}

static void put_json(const report *r, apr_json_text *out)
{
    const char *const container = apr_format_name(r->model->format);

    apr_json_string(out, "path", r->model->path, strlen(r->model->path));
    apr_json_string(out, "container", container, strlen(container));
    apr_json_uint(out, "n_tensors", r->model->n_tensors);
    apr_json_uint(out, "n_checksums", r->n_stated);
    apr_json_uint(out, "n_checksums_good", r->n_good);
    apr_json_string(out, "footer", footer_name(r), strlen(footer_name(r)));
    apr_json_int(out, "n_values", r->n_values);
    apr_json_int(out, "n_nonfinite", r->n_nonfinite);
    apr_json_open(out, "findings", '[');
    for (size_t i = 0; i < r->n_findings; i++) {
        const finding *const f = &r->findings[i];
        apr_json_open(out, NULL, '{');
        apr_json_string(out, "kind", finding_names[f->kind], strlen(finding_names[f->kind]));
        if (f->tensor != NULL) apr_json_string(out, f->kind == DAMAGED_FILE ? "file" : "tensor", f->tensor, strlen(f->tensor));
        apr_json_string(out, "text", f->text, strlen(f->text));
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
}

static apr_status print_findings(const report *r, apr_error *err)
{
    static const apr_column columns[] = {{NULL, false}, {NULL, false}, {NULL, false}};
    apr_table table;

    printf("\n%sFindings%s\n", apr_bold(stdout), apr_plain(stdout));
    apr_table_start(&table, columns, 3);
    for (size_t i = 0; i < r->n_findings; i++) {
        apr_table_cell(&table, "%s", r->findings[i].tensor != NULL ? r->findings[i].tensor : "the file");
        apr_table_cell(&table, "%s", finding_names[r->findings[i].kind]);
        apr_table_cell(&table, "%s", r->findings[i].text);
    }
    return apr_table_print(&table, stdout, 2, err);
}

static apr_status print_text(const report *r, apr_error *err)
{
    const bool is_apr = r->model->format == APR_FORMAT_APR;
    char path[512], size[APR_SMALL_TEXT], count[APR_SMALL_TEXT];

    printf("%s%s%s: %s, %zu tensor%s, %s\n", apr_bold(stdout), apr_clean_text(path, sizeof path, r->model->path, strlen(r->model->path)),
           apr_plain(stdout), apr_format_name(r->model->format), r->model->n_tensors, r->model->n_tensors == 1 ? "" : "s",
           apr_size_text(size, r->file_bytes));
    printf("  structure  good: every count, extent, size and name\n");
    if (is_apr && r->n_stated == 0) printf("  checksums  none for tensors; the file's own is %s\n", footer_name(r));
    else if (is_apr) printf("  checksums  %zu of %zu tensors good; the file's own is %s\n", r->n_good, r->n_stated, footer_name(r));
    else printf("  checksums  %s has none\n", apr_format_name(r->model->format));
    printf("  values     %s decoded, ", apr_count_text(count, r->n_values));
    if (r->n_nonfinite == 0) printf("all finite\n");
    else printf("%s not finite\n", apr_count_text(count, r->n_nonfinite));
    return r->n_findings > 0 ? print_findings(r, err) : APR_OK;
}

static apr_status verdict(const report *r, apr_error *err)
{
    if (r->n_of[DAMAGED_CHECKSUM] > 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: %zu checksum%s not match: the file has changed since it was written, get it again",
                        r->model->path, r->n_of[DAMAGED_CHECKSUM], r->n_of[DAMAGED_CHECKSUM] == 1 ? " does" : "s do");
    if (r->n_of[DAMAGED_FILE] > 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: %zu attached file%s damaged: loaders will stumble over %s", r->model->path,
                        r->n_of[DAMAGED_FILE], r->n_of[DAMAGED_FILE] == 1 ? " is" : "s are", r->n_of[DAMAGED_FILE] == 1 ? "it" : "them");
    if (r->n_of[NOT_FINITE] > 0)
        return apr_fail(err, APR_E_NO, "%s: %zu %s values that are not finite", r->model->path, r->n_of[NOT_FINITE],
                        r->n_of[NOT_FINITE] == 1 ? "tensor holds" : "tensors hold");
    return APR_OK;
}

static apr_status run_check(const apr_call *call, apr_error *err)
{
    apr_model model;
    apr_meter meter;
    report r = {.model = &model};

    apr_status status = apr_model_open(&model, call->operands[0], err);
    if (status != APR_OK) goto done;
    r.findings = calloc(2 * model.n_tensors + model.n_attachments + 1, sizeof *r.findings);
    if (r.findings == NULL) {
        status = apr_no_memory(err, "the findings");
        goto done;
    }
    const apr_progress progress = apr_meter_start(&meter, call->quiet);
    status = check_model(&r, &progress, err);
    apr_meter_end(&meter);
    if (status == APR_OK && call->answer->json) put_json(&r, &call->answer->body);
    else if (status == APR_OK) status = print_text(&r, err);
    if (status == APR_OK) status = verdict(&r, err);
done:
    free(r.findings);
    apr_model_close(&model);
    return status;
}

static const char *const examples[] = {"aprconv check model.apr", "aprconv check Qwen2.5-7B/ --json", NULL};
const apr_command apr_check_command = {.verb = "check",
                                       .operands = "FILE",
                                       .min_operands = 1,
                                       .max_operands = 1,
                                       .summary =
                                           "read all of a model: its structure, its checksums, and whether every value is a finite number",
                                       .examples = examples,
                                       .run = run_check};
