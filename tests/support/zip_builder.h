/* zip_builder.h - zip archives for tests, byte by byte, so that any byte of them may be wrong. */
#ifndef APR_TESTS_ZIP_BUILDER_H
#define APR_TESTS_ZIP_BUILDER_H

#include "formats/base/bytes.h"

#include <stdint.h>
#include <string.h>

enum { ZIP_ROOM = 8192, ZIP_MEMBERS = 12 };

typedef struct zip_builder {
    uint8_t bytes[ZIP_ROOM];
    size_t n_bytes;
    size_t locals[ZIP_MEMBERS], entries[ZIP_MEMBERS]; /* where the headers of each are; entries when it is closed */
    const char *names[ZIP_MEMBERS];
    uint32_t sizes[ZIP_MEMBERS];
    size_t n_members, table_at, end_at;
} zip_builder;

static inline uint8_t *zip_room(zip_builder *z, size_t n)
{
    uint8_t *const at = z->bytes + z->n_bytes;
    memset(at, 0, n);
    z->n_bytes += n;
    return at;
}

/* A local header and the bytes of a stored file. */
static inline void zip_add(zip_builder *z, const char *name, const void *bytes, size_t n_bytes)
{
    const size_t n_name = strlen(name), i = z->n_members++;

    z->locals[i] = z->n_bytes;
    z->names[i] = name;
    z->sizes[i] = (uint32_t)n_bytes;
    uint8_t *const h = zip_room(z, 30 + n_name + n_bytes);
    memcpy(h, "PK\3\4", 4);
    apr_store_le32(h + 18, (uint32_t)n_bytes);
    apr_store_le32(h + 22, (uint32_t)n_bytes);
    apr_store_le16(h + 26, (uint16_t)n_name);
    memcpy(h + 30, name, n_name);
    if (n_bytes > 0) memcpy(h + 30 + n_name, bytes, n_bytes);
}

/* The table of all that was added, and the end. With zip64 their numbers stand in the longer fields. */
static inline void zip_close(zip_builder *z, int zip64)
{
    z->table_at = z->n_bytes;
    for (size_t i = 0; i < z->n_members; i++) {
        const size_t n_name = strlen(z->names[i]), n_extra = zip64 ? 28 : 0;
        z->entries[i] = z->n_bytes;
        uint8_t *const h = zip_room(z, 46 + n_name + n_extra), *const extra = h + 46 + n_name;
        memcpy(h, "PK\1\2", 4);
        apr_store_le32(h + 20, zip64 ? UINT32_MAX : z->sizes[i]);
        apr_store_le32(h + 24, zip64 ? UINT32_MAX : z->sizes[i]);
        apr_store_le16(h + 28, (uint16_t)n_name);
        apr_store_le16(h + 30, (uint16_t)n_extra);
        apr_store_le32(h + 42, zip64 ? UINT32_MAX : (uint32_t)z->locals[i]);
        memcpy(h + 46, z->names[i], n_name);
        if (!zip64) continue;
        apr_store_le16(extra, 1);
        apr_store_le16(extra + 2, 24);
        apr_store_le64(extra + 4, z->sizes[i]);
        apr_store_le64(extra + 12, z->sizes[i]);
        apr_store_le64(extra + 20, z->locals[i]);
    }
    const size_t n_table = z->n_bytes - z->table_at, end64_at = z->n_bytes;
    if (zip64) {
        uint8_t *const end64 = zip_room(z, 56), *const locator = zip_room(z, 20);
        memcpy(end64, "PK\6\6", 4);
        apr_store_le64(end64 + 4, 44);
        apr_store_le64(end64 + 32, z->n_members);
        apr_store_le64(end64 + 40, n_table);
        apr_store_le64(end64 + 48, z->table_at);
        memcpy(locator, "PK\6\7", 4);
        apr_store_le64(locator + 8, end64_at);
    }
    z->end_at = z->n_bytes;
    uint8_t *const end = zip_room(z, 22);
    memcpy(end, "PK\5\6", 4);
    apr_store_le16(end + 10, zip64 ? UINT16_MAX : (uint16_t)z->n_members);
    apr_store_le32(end + 12, zip64 ? UINT32_MAX : (uint32_t)n_table);
    apr_store_le32(end + 16, zip64 ? UINT32_MAX : (uint32_t)z->table_at);
}

#endif
