/* integrity.c - checksums, values and small files of a model, on all cores. */
#include "runtime/check/integrity.h"

#include "formats/base/crc32.h"
#include "formats/base/json.h"
#include "formats/base/text.h"
#include "formats/base/threads.h"
#include "kernels/rows.h"
#include "runtime/check/row_blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(apr_integrity *r, apr_integrity_result problem)
{
    r->findings[r->n_findings++] = problem;
    r->n_of[problem.kind]++;
}

static void add_file(apr_integrity *r, const char *name, const char *why)
{
    apr_integrity_result problem = {.kind = APR_FOUND_ATTACHMENT, .name = name};
    snprintf(problem.text, sizeof problem.text, "%.250s", why);
    add(r, problem);
}

static void check_crc(apr_integrity *r, const apr_model *model, const apr_tensor *tensor)
{
    uint32_t stated = 0;

    if (model->format != APR_FORMAT_APR || !apr_apr_stated_crc(model, tensor->name, &stated)) return;
    const uint32_t actual = apr_crc32_of(tensor->data, tensor->n_bytes);
    r->n_stated++;
    if (stated == actual) r->n_good++;
    else add(r, (apr_integrity_result){APR_FOUND_CHECKSUM, tensor->name, .stated = stated, .actual = actual});
}

/* Counts values that are not finite. x[0] has index `base`; *first is lowered to the smallest index found. */
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

static apr_status check_values(apr_integrity *r, const apr_tensor *tensor, apr_error *err)
{
    const apr_row_blocks blocks = apr_row_blocks_of(tensor);
    int64_t n_bad = 0, first = INT64_MAX;
    bool no_memory = false;

    if (!apr_can_decode(tensor->dtype) || !apr_dtype_is_weights(tensor->dtype)) return APR_OK;
    const int n_threads = apr_threads(apr_all_threads(), blocks.n_blocks, 2.0 * (double)apr_tensor_elems(tensor));
#pragma omp parallel for schedule(dynamic) reduction(+ : n_bad) reduction(min : first) reduction(|| : no_memory) num_threads(n_threads)
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
        add(r,
            (apr_integrity_result){APR_FOUND_NOT_FINITE, tensor->name, .n = n_bad, .n_values = apr_tensor_elems(tensor), .first = first});
    return APR_OK;
}

/* Opening a model parses only the files it needs. This parses the others as well, before a loader fails on them. */
static apr_status check_attachment(apr_integrity *r, const apr_attachment *file, apr_error *err)
{
    apr_error why = {0};
    cJSON *tree = NULL;

    if (apr_ends_with(file->name, ".json")) {
        const apr_status status = apr_json_parse(&tree, file->data, file->n_bytes, file->name, &why);
        cJSON_Delete(tree);
        if (status == APR_E_MEMORY) return apr_no_memory(err, file->name);
        const char *const colon = strstr(why.text, ": "); /* skip the name, which is reported separately */
        if (status != APR_OK) add_file(r, file->name, colon != NULL ? colon + 2 : why.text);
    } else if (apr_ends_with(file->name, ".jinja") && file->n_bytes > 0) {
        const apr_str text = {(const char *)file->data, file->n_bytes};
        if (!apr_str_is_utf8(text) || memchr(text.text, '\0', text.n_bytes) != NULL) add_file(r, file->name, "is not UTF-8 text");
    }
    return APR_OK;
}

static apr_status check_model(apr_integrity *r, const apr_model *model, const apr_progress *progress, apr_error *err)
{
    uint64_t total = 0, done = 0;

    for (size_t i = 0; i < model->n_maps; i++) r->file_bytes += model->maps[i].n_bytes;
    if (model->format == APR_FORMAT_APR) r->footer = apr_apr_check_footer(model);
    if (model->format == APR_FORMAT_APR && r->footer == APR_FOOTER_BAD) add(r, (apr_integrity_result){.kind = APR_FOUND_CHECKSUM});
    for (size_t i = 0; i < model->n_attachments; i++) APR_TRY(check_attachment(r, &model->attachments[i], err));
    for (size_t i = 0; i < model->n_tensors; i++) total += model->tensors[i].n_bytes;
    for (size_t i = 0; i < model->n_packings; i++) APR_TRY(check_values(r, &model->packings[i], err)); /* their tensors hold codes */
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const tensor = &model->tensors[i];
        apr_progress_report(progress, done, total, tensor->name);
        check_crc(r, model, tensor);
        APR_TRY(check_values(r, tensor, err));
        done += tensor->n_bytes;
    }
    return APR_OK;
}

apr_status apr_integrity_check(apr_integrity *integrity, const apr_model *model, const apr_progress *progress, apr_error *err)
{
    /* at most two per tensor, one per attached file, and one for the whole file */
    *integrity = (apr_integrity){
        .findings = calloc(2 * model->n_tensors + model->n_packings + model->n_attachments + 1, sizeof(apr_integrity_result))};
    if (integrity->findings == NULL) return apr_no_memory(err, "the list of problems");
    return check_model(integrity, model, progress, err);
}

void apr_integrity_close(apr_integrity *integrity)
{
    free(integrity->findings);
    *integrity = (apr_integrity){0};
}
