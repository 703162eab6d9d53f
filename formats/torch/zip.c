/* zip.c - finds the members of a zip archive; trusts the central table, and uses only the lengths of local headers. */
#include "formats/torch/zip.h"

#include "formats/base/bytes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22,       /* without the comment after it, of at most 65535 bytes */
    LOCATOR_BYTES = 20,   /* of zip64: holds the offset of its end record */
    END64_BYTES = 56,     /* the part that is read */
    ENTRY_BYTES = 46,     /* an entry of the central table, without name, extra fields and comment */
    LOCAL_BYTES = 30,     /* a local header, without name and extra fields */
    EXTRA_ZIP64 = 1,      /* the extra field for numbers that do not fit in 32 bits */
    FLAG_ENCRYPTED = 0x1, /* bit 3 (sizes after the data) is ignored: the central table has the sizes */
    STORED = 0
};

static const uint32_t ENTRY_SIGN = 0x02014b50, LOCAL_SIGN = 0x04034b50, END_SIGN = 0x06054b50, END64_SIGN = 0x06064b50,
                      LOCATOR_SIGN = 0x07064b50, IN_ZIP64 = 0xffffffff;

typedef struct reading {
    const uint8_t *data;
    uint64_t n_bytes;
    uint64_t table_at, table_bytes, n_members; /* from the end record */
    const char *where;
    apr_error *err;
} reading;

static apr_status damaged(const reading *r, const char *what, uint64_t at)
{
    return apr_fail(r->err, APR_E_DAMAGED, "%s: %s, at byte %" PRIu64 " of its zip archive", r->where, what, at);
}

/* --- the end record --- */

static apr_status read_end64(reading *r, uint64_t end_at)
{
    if (end_at < LOCATOR_BYTES || apr_load_le32(r->data + end_at - LOCATOR_BYTES) != LOCATOR_SIGN) return APR_OK;
    const uint64_t at = apr_load_le64(r->data + end_at - LOCATOR_BYTES + 8);
    if (at > r->n_bytes || r->n_bytes - at < END64_BYTES || apr_load_le32(r->data + at) != END64_SIGN)
        return damaged(r, "the end of the table of files is not where it should be", at);
    r->n_members = apr_load_le64(r->data + at + 32);
    r->table_bytes = apr_load_le64(r->data + at + 40);
    r->table_at = apr_load_le64(r->data + at + 48);
    return APR_OK;
}

/* The end record is followed by a comment that ends with the file. */
static apr_status read_end(reading *r)
{
    for (uint64_t back = END_BYTES; back <= r->n_bytes && back <= END_BYTES + 65535; back++) {
        const uint8_t *const end = r->data + r->n_bytes - back;
        if (apr_load_le32(end) != END_SIGN || apr_load_le16(end + 20) != back - END_BYTES) continue;
        r->n_members = apr_load_le16(end + 10);
        r->table_bytes = apr_load_le32(end + 12);
        r->table_at = apr_load_le32(end + 16);
        APR_TRY(read_end64(r, r->n_bytes - back));
        if (r->table_at <= r->n_bytes && r->table_bytes <= r->n_bytes - r->table_at) return APR_OK;
        return damaged(r, "the table of files is outside the file", r->n_bytes - back);
    }
    return apr_fail(r->err, APR_E_DAMAGED,
                    "%s: its zip archive has no end record in its %" PRIu64 " bytes: the file is cut off; fetch it again", r->where,
                    r->n_bytes);
}

/* --- one member --- */

typedef struct entry {
    const uint8_t *head; /* in the central table */
    size_t n_name, n_extra;
    uint64_t packed, size, local_at;
} entry;

/* A number of all ones in the entry is replaced by one from its zip64 field, in this order. */
static bool read_extra(entry *e)
{
    apr_cursor extra = {.data = e->head + ENTRY_BYTES + e->n_name, .n_bytes = e->n_extra};
    uint64_t *const wanted[] = {&e->size, &e->packed, &e->local_at};

    while (apr_cursor_left(&extra) >= 4) {
        const uint16_t id = apr_cursor_u16(&extra), n = apr_cursor_u16(&extra);
        apr_cursor field = {.data = apr_cursor_take(&extra, n), .n_bytes = n};
        if (field.data == NULL) return false;
        if (id != EXTRA_ZIP64) continue;
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (*wanted[i] == IN_ZIP64) *wanted[i] = apr_cursor_u64(&field);
        return !field.failed;
    }
    return e->size != IN_ZIP64 && e->packed != IN_ZIP64 && e->local_at != IN_ZIP64;
}

/* Reads the next entry of the central table. */
static apr_status read_entry(const reading *r, apr_cursor *table, entry *e)
{
    const uint64_t at = r->table_at + table->at;
    const uint8_t *const h = apr_cursor_take(table, ENTRY_BYTES);

    if (h == NULL || apr_load_le32(h) != ENTRY_SIGN) return damaged(r, "an entry of the table of files is missing", at);
    *e = (entry){.head = h,
                 .n_name = apr_load_le16(h + 28),
                 .n_extra = apr_load_le16(h + 30),
                 .packed = apr_load_le32(h + 20),
                 .size = apr_load_le32(h + 24),
                 .local_at = apr_load_le32(h + 42)};
    if (apr_cursor_take(table, (uint64_t)e->n_name + e->n_extra + apr_load_le16(h + 32)) == NULL || !read_extra(e))
        return damaged(r, "an entry of the table of files is cut off", at);
    return APR_OK;
}

static apr_status read_member(const reading *r, const entry *e, apr_zip_member *m)
{
    const char *const name = (const char *)e->head + ENTRY_BYTES;
    const int n_shown = e->n_name < 80 ? (int)e->n_name : 80;

    if ((apr_load_le16(e->head + 8) & FLAG_ENCRYPTED) != 0 || apr_load_le16(e->head + 10) != STORED)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: '%.*s' in it is compressed or encrypted, which torch.save never does", r->where,
                        n_shown, name);
    if (e->local_at > r->table_at || r->table_at - e->local_at < LOCAL_BYTES || apr_load_le32(r->data + e->local_at) != LOCAL_SIGN)
        return damaged(r, "the header of a file in it is missing", e->local_at);
    const uint8_t *const local = r->data + e->local_at;
    const uint64_t begin = e->local_at + LOCAL_BYTES + apr_load_le16(local + 26) + apr_load_le16(local + 28);
    if (e->packed != e->size || begin > r->table_at || e->size > r->table_at - begin)
        return damaged(r, "a file in it is not before the table of files", e->local_at);
    *m = (apr_zip_member){name, e->n_name, r->data + begin, e->size};
    return APR_OK;
}

/* --- all members --- */

static int by_offset(const void *a, const void *b)
{
    const apr_zip_member *const x = a, *const y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

static int compare_names(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order != 0 ? order : n_a < n_b ? -1 : n_a > n_b;
}

static int by_name(const void *a, const void *b)
{
    const apr_zip_member *const x = a, *const y = b;
    return compare_names(x->name, x->n_name, y->name, y->n_name);
}

/* Members must not overlap, and names must be unique, so that different readers cannot see different files. */
static apr_status check_overlaps(const reading *r, apr_zip_member *members, size_t n)
{
    qsort(members, n, sizeof *members, by_offset);
    for (size_t i = 1; i < n; i++)
        if ((uint64_t)(members[i].data - members[i - 1].data) < members[i - 1].n_bytes)
            return damaged(r, "two files overlap", (uint64_t)(members[i].data - r->data));
    qsort(members, n, sizeof *members, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&members[i - 1], &members[i]) == 0)
            return damaged(r, "two files have the same name", (uint64_t)(members[i].data - r->data));
    return APR_OK;
}

apr_status apr_zip_read(apr_zip *zip, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena, apr_error *err)
{
    reading r = {.data = data, .n_bytes = n_bytes, .where = where, .err = err};
    entry e;

    *zip = (apr_zip){0};
    APR_TRY(read_end(&r));
    if (r.n_members > r.table_bytes / ENTRY_BYTES) return damaged(&r, "the table of files is too small for its entries", r.table_at);
    apr_cursor table = {.data = data + r.table_at, .n_bytes = (size_t)r.table_bytes};
    apr_zip_member *const members = apr_arena_array(arena, (size_t)r.n_members + 1, sizeof *members);
    if (members == NULL) return apr_no_memory(err, "the table of a zip archive");
    for (uint64_t i = 0; i < r.n_members; i++) {
        APR_TRY(read_entry(&r, &table, &e));
        APR_TRY(read_member(&r, &e, &members[i]));
    }
    APR_TRY(check_overlaps(&r, members, (size_t)r.n_members));
    *zip = (apr_zip){members, (size_t)r.n_members};
    return APR_OK;
}

const apr_zip_member *apr_zip_find(const apr_zip *zip, const char *prefix, size_t n_prefix, const char *name, size_t n_name)
{
    size_t low = 0, high = zip->n;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const apr_zip_member *const m = &zip->members[middle];
        const size_t n_head = m->n_name < n_prefix ? m->n_name : n_prefix;
        int order = compare_names(m->name, n_head, prefix, n_prefix);
        if (order == 0) order = compare_names(m->name + n_prefix, m->n_name - n_prefix, name, n_name);
        if (order == 0) return m;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}
