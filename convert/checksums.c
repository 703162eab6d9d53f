/* checksums.c - finds the source tensors that a view's tensor is read from, and checks each of them once. */
#include "convert/checksums.h"

#include "formats/base/crc32.h"
#include "formats/tensor/composed.h"
#include "formats/tensor/packing.h"

#include <stdlib.h>

/* One tensor of the source. */
typedef struct source_tensor {
    const apr_tensor *tensor;
    uint32_t stated;
    bool is_checked;
} source_tensor;

struct apr_checksums {
    const char *path;
    source_tensor *places; /* [n_places], sorted by address */
    size_t n_places;
};

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const source_tensor *)a)->tensor->data, y = (uintptr_t)((const source_tensor *)b)->tensor->data;
    return (x > y) - (x < y);
}

apr_status apr_checksums_open(apr_checksums **checksums, const apr_model *source, apr_error *err)
{
    *checksums = NULL;
    if (source->stated_crcs == NULL) return APR_OK;
    APR_TRY(apr_model_check_head(source, err));
    apr_checksums *const c = calloc(1, sizeof *c);
    if (c == NULL) return apr_no_memory(err, "checksums");
    c->path = source->path;
    c->places = calloc(source->n_tensors + 1, sizeof *c->places);
    if (c->places == NULL) return free(c), apr_no_memory(err, "checksums");
    for (size_t i = 0; i < source->n_tensors; i++)
        if (source->tensors[i].n_bytes > 0)
            c->places[c->n_places++] = (source_tensor){.tensor = &source->tensors[i], .stated = source->stated_crcs[i]};
    qsort(c->places, c->n_places, sizeof *c->places, by_address);
    *checksums = c;
    return APR_OK;
}

void apr_checksums_close(apr_checksums *checksums)
{
    if (checksums == NULL) return;
    free(checksums->places);
    free(checksums);
}

/* The source tensor that contains that address; NULL: none. */
static source_tensor *find_place(apr_checksums *c, const uint8_t *data)
{
    size_t low = 0, high = c->n_places;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((uintptr_t)c->places[middle].tensor->data <= (uintptr_t)data) low = middle + 1;
        else high = middle;
    }
    if (low == 0) return NULL;
    source_tensor *const found = &c->places[low - 1];
    return (uintptr_t)data - (uintptr_t)found->tensor->data < found->tensor->n_bytes ? found : NULL;
}

static apr_status check_bytes(apr_checksums *c, const uint8_t *data, apr_error *err)
{
    source_tensor *const found = data != NULL ? find_place(c, data) : NULL;

    if (found == NULL || found->is_checked) return APR_OK;
    const uint32_t actual = apr_crc32_of(found->tensor->data, found->tensor->n_bytes);
    if (actual != found->stated)
        return apr_fail(err, APR_E_DAMAGED,
                        "%s: tensor '%s' has changed since the file was written: it states the checksum %08x, and the bytes give %08x; get "
                        "the file again",
                        c->path, found->tensor->name, (unsigned)found->stated, (unsigned)actual);
    found->is_checked = true;
    return APR_OK;
}

apr_status apr_checksums_check(apr_checksums *checksums, const apr_tensor *tensor, apr_error *err)
{
    if (checksums == NULL || tensor == NULL) return APR_OK;
    APR_TRY(check_bytes(checksums, tensor->data, err));
    APR_TRY(apr_checksums_check(checksums, tensor->scale, err));
    for (size_t i = 0; tensor->made != NULL && i < tensor->made->n_parts; i++)
        APR_TRY(apr_checksums_check(checksums, tensor->made->parts[i], err));
    for (size_t i = 0; tensor->packing != NULL && i < tensor->packing->n_parts; i++)
        APR_TRY(apr_checksums_check(checksums, tensor->packing->parts[i], err));
    return APR_OK;
}
