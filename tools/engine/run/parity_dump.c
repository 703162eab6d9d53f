/* parity_dump.c - collects the values of a layer, and writes them when the next one begins. */
#include "tools/engine/run/parity_dump.h"

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/files/out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Marks such a file, in its header: a later run replaces only a file with this mark. */
static const char file_mark[] = ".ref.";

apr_status apr_parity_dump_check(const char *dir, apr_error *err)
{
    char path[4096];

    if (dir == NULL) return APR_OK;
    APR_TRY(apr_folder_ensure(dir, false, err));
    snprintf(path, sizeof path, "%s/position.safetensors", dir);
    return access(dir, F_OK) == 0 ? apr_out_check(path, false, err) : APR_OK;
}

apr_status apr_parity_dump_flush(apr_parity_dump *d, apr_error *err)
{
    uint8_t length[8];
    size_t n_header;
    apr_out *out;

    if (d->path[0] == '\0') return APR_OK;
    apr_json_close(&d->header, '}');
    char *const header = apr_json_text_take(&d->header, &n_header);
    if (header == NULL) return apr_no_memory(err, "a dump");
    apr_store_le64(length, n_header);
    apr_status status = apr_folder_ensure(d->dir, true, err);
    if (status == APR_OK) status = apr_out_open_marked(&out, d->path, file_mark, err);
    if (status == APR_OK) {
        status = apr_out_write(out, length, sizeof length, NULL, err);
        if (status == APR_OK) status = apr_out_write(out, header, n_header, NULL, err);
        if (status == APR_OK) status = apr_out_write(out, d->data, d->n_bytes, NULL, err);
        if (status == APR_OK) status = apr_out_finish(out, err);
        else apr_out_abandon(out);
    }
    free(header);
    d->path[0] = '\0';
    d->n_bytes = 0;
    return status;
}

static apr_status add_values(apr_parity_dump *d, const apr_parity_record *r, const char *side, const float *values, apr_error *err)
{
    const size_t n = (size_t)(r->n_rows * r->width) * sizeof *values;
    char name[256];

    uint8_t *const data = apr_grow(d->data, &d->capacity, d->n_bytes + n, 1);
    if (data == NULL) return apr_no_memory(err, "a dump");
    d->data = data;
    memcpy(d->data + d->n_bytes, values, n);
    snprintf(name, sizeof name, "%03zu.%s.%s", r->op_index, side, r->name);
    apr_json_open(&d->header, name, '{');
    apr_json_string(&d->header, "dtype", "F32", 3);
    apr_json_open(&d->header, "shape", '[');
    apr_json_int(&d->header, NULL, r->n_rows);
    apr_json_int(&d->header, NULL, r->width);
    apr_json_close(&d->header, ']');
    apr_json_open(&d->header, "data_offsets", '[');
    apr_json_uint(&d->header, NULL, d->n_bytes);
    apr_json_uint(&d->header, NULL, d->n_bytes + n);
    apr_json_close(&d->header, ']');
    apr_json_close(&d->header, '}');
    d->n_bytes += n;
    return APR_OK;
}

apr_status apr_parity_dump_add(apr_parity_dump *d, const apr_parity_record *r, const char *backend, apr_error *err)
{
    char path[sizeof d->path], layer[32];

    if (d->dir == NULL) return APR_OK;
    if (r->op->layer >= 0) snprintf(layer, sizeof layer, "layer-%03d", r->op->layer);
    else snprintf(layer, sizeof layer, "%s", r->op_index < 2 ? "embeddings" : "head");
    snprintf(path, sizeof path, "%s/position-%06lld-tokens-%lld-%s.safetensors", d->dir, (long long)r->position, (long long)r->n_tokens,
             layer);
    if (strcmp(path, d->path) != 0) {
        APR_TRY(apr_parity_dump_flush(d, err));
        memcpy(d->path, path, sizeof path);
        apr_json_open(&d->header, NULL, '{');
    }
    APR_TRY(add_values(d, r, "ref", r->reference, err));
    return add_values(d, r, backend, r->other, err);
}

void apr_parity_dump_close(apr_parity_dump *d)
{
    apr_json_text_free(&d->header);
    free(d->data);
}
