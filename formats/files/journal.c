/* journal.c - prints and parses the lines of a journal. */
#include "formats/files/journal.h"

#include "formats/base/crc32.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "aprkit journal 1 "
enum { CRC_SUFFIX_BYTES = 10 }; /* " #" and eight digits */

/* Appends the checksum and '\n' to a line of n bytes. */
static size_t append_crc(char line[APR_JOURNAL_LINE_BYTES], size_t n)
{
    return n + (size_t)snprintf(line + n, APR_JOURNAL_LINE_BYTES - n, " #%08" PRIx32 "\n", apr_crc32(0, line, n));
}

size_t apr_journal_head(char line[APR_JOURNAL_LINE_BYTES], uint32_t terms_crc)
{
    return append_crc(line, (size_t)snprintf(line, APR_JOURNAL_LINE_BYTES, HEAD "%08" PRIx32, terms_crc));
}

size_t apr_journal_line(char line[APR_JOURNAL_LINE_BYTES], const apr_record *record)
{
    return append_crc(line, (size_t)snprintf(line, APR_JOURNAL_LINE_BYTES, "%" PRIu64 " %" PRIu64 " %08" PRIx32 " %.*s", record->tensor,
                                             record->n_bytes, record->crc, (int)APR_NOTE_BYTES - 1, record->note));
}

/* The length of the line without its checksum; -1: the checksum does not match. */
static ptrdiff_t check_crc(const char *line, size_t n)
{
    char wanted[CRC_SUFFIX_BYTES + 1];

    if (n < CRC_SUFFIX_BYTES) return -1;
    snprintf(wanted, sizeof wanted, " #%08" PRIx32, apr_crc32(0, line, n - CRC_SUFFIX_BYTES));
    return memcmp(line + n - CRC_SUFFIX_BYTES, wanted, CRC_SUFFIX_BYTES) == 0 ? (ptrdiff_t)(n - CRC_SUFFIX_BYTES) : -1;
}

/* Reads a number at *at and the space after it. */
static bool read_number(const char **at, int base, uint64_t *value)
{
    char *end;

    if (strspn(*at, base == 16 ? "0123456789abcdef" : "0123456789") == 0) return false;
    *value = strtoull(*at, &end, base);
    if (*end != ' ') return false;
    *at = end + 1;
    return true;
}

/* `text`: a line without its checksum, in the arena. */
static bool read_record(const char *text, apr_record *record)
{
    uint64_t crc;

    if (!read_number(&text, 10, &record->tensor) || !read_number(&text, 10, &record->n_bytes) || !read_number(&text, 16, &crc))
        return false;
    record->crc = (uint32_t)crc;
    record->note = text;
    return crc <= UINT32_MAX;
}

static apr_status add(apr_records *records, const apr_record *record, apr_error *err)
{
    if (records->n_items == records->capacity) {
        const size_t capacity = 2 * records->capacity + 64;
        apr_record *const more = realloc(records->items, capacity * sizeof *more);
        if (more == NULL) return apr_no_memory(err, "a journal");
        records->items = more;
        records->capacity = capacity;
    }
    records->items[records->n_items++] = *record;
    return APR_OK;
}

static apr_status read_line(apr_records *records, const char *line, size_t n, size_t number, uint32_t terms_crc, const char *path,
                            apr_error *err)
{
    char head[APR_JOURNAL_LINE_BYTES];
    apr_record record;

    const ptrdiff_t n_text = check_crc(line, n);
    if (n_text >= 0 && number == 1 && apr_journal_head(head, terms_crc) == n + 1 && memcmp(head, line, n) == 0) return APR_OK;
    const char *const text = n_text >= 0 && number > 1 ? apr_arena_copy(&records->arena, line, (size_t)n_text) : NULL;
    if (n_text >= 0 && number > 1 && text == NULL) return apr_no_memory(err, "a journal");
    if (text != NULL && read_record(text, &record)) return add(records, &record, err);
    return apr_fail(err, APR_E_DAMAGED, "%s: line %zu is damaged; remove the folder to start again", path, number);
}

apr_status apr_journal_read(apr_records *records, const char *text, size_t n_bytes, uint32_t terms_crc, const char *path, apr_error *err)
{
    const char *const end = text + n_bytes, *line = text;

    for (size_t number = 1; line < end; number++) {
        const char *const stop = memchr(line, '\n', (size_t)(end - line));
        if (stop == NULL) return APR_OK; /* cut off */
        APR_TRY(read_line(records, line, (size_t)(stop - line), number, terms_crc, path, err));
        line = stop + 1;
    }
    return APR_OK;
}

static int by_tensor(const void *a, const void *b)
{
    const apr_record *const x = a, *const y = b;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    return x->crc < y->crc ? -1 : x->crc > y->crc;
}

void apr_records_sort(apr_records *records)
{
    if (records->n_items > 0) qsort(records->items, records->n_items, sizeof *records->items, by_tensor);
}

const apr_record *apr_records_find(const apr_records *records, uint64_t tensor, uint32_t crc)
{
    const apr_record wanted = {.tensor = tensor, .crc = crc};
    return records->n_items > 0 ? bsearch(&wanted, records->items, records->n_items, sizeof wanted, by_tensor) : NULL;
}

void apr_records_close(apr_records *records)
{
    free(records->items);
    apr_arena_close(&records->arena);
    *records = (apr_records){0};
}
