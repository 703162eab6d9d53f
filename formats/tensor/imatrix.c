/* imatrix.c - the table of an importance matrix's entries. */
#include "formats/tensor/imatrix.h"

#include "formats/base/crc32.h"

#include <stdlib.h>
#include <string.h>

apr_status apr_imatrix_start(apr_imatrix *m, const char *path, size_t capacity, apr_error *err)
{
    *m = (apr_imatrix){0};
    m->path = apr_arena_copy(&m->arena, path, strlen(path));
    m->entries = apr_arena_array(&m->arena, capacity + 1, sizeof *m->entries);
    if (m->path != NULL && m->entries != NULL) return APR_OK;
    apr_imatrix_close(m);
    return apr_no_memory(err, "an imatrix");
}

apr_imatrix_entry *apr_imatrix_add(apr_imatrix *m, const char *name, int64_t n_matrices, int64_t n_columns)
{
    apr_imatrix_entry *const e = &m->entries[m->n_entries];
    size_t n;

    if (__builtin_mul_overflow((size_t)n_matrices, (size_t)n_columns, &n)) return NULL;
    *e = (apr_imatrix_entry){.name = apr_arena_copy(&m->arena, name, strlen(name)),
                             .n_matrices = n_matrices,
                             .n_columns = n_columns,
                             .sums = apr_arena_array(&m->arena, n + 1, sizeof *e->sums),
                             .counts = apr_arena_array(&m->arena, (size_t)n_matrices + 1, sizeof *e->counts)};
    if (e->name == NULL || e->sums == NULL || e->counts == NULL) return NULL;
    m->n_entries++;
    return e;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const apr_imatrix_entry *)a)->name, ((const apr_imatrix_entry *)b)->name);
}

apr_status apr_imatrix_sort(apr_imatrix *m, apr_error *err)
{
    qsort(m->entries, m->n_entries, sizeof *m->entries, by_name);
    for (size_t i = 1; i < m->n_entries; i++)
        if (by_name(&m->entries[i - 1], &m->entries[i]) == 0)
            return apr_fail(err, APR_E_DAMAGED, "%s: the imatrix has '%.200s' twice", m->path, m->entries[i].name);
    return APR_OK;
}

const apr_imatrix_entry *apr_imatrix_find(const apr_imatrix *m, const char *name)
{
    const apr_imatrix_entry key = {.name = name};
    return bsearch(&key, m->entries, m->n_entries, sizeof *m->entries, by_name);
}

uint32_t apr_imatrix_sum(const apr_imatrix *m)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < m->n_entries; i++) {
        const apr_imatrix_entry *const e = &m->entries[i];
        crc = apr_crc32(crc, e->name, strlen(e->name));
        crc = apr_crc32(crc, e->sums, (size_t)(e->n_matrices * e->n_columns) * sizeof *e->sums);
        crc = apr_crc32(crc, e->counts, (size_t)e->n_matrices * sizeof *e->counts);
    }
    return crc;
}

void apr_imatrix_close(apr_imatrix *m)
{
    apr_arena_close(&m->arena);
    *m = (apr_imatrix){0};
}
