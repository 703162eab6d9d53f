/* zip.h - the table of a zip archive with uncompressed members, as torch.save writes it; zip64 included.
 *
 *   local header   "PK\3\4", then a name, then the member's bytes; only used to find where the bytes begin
 *   ...
 *   central table  one "PK\1\2" for each member: its name, its size, the offset of its local header
 *   end            "PK\5\6", number of entries and offset of the table; in large files both are in "PK\6\6", found by "PK\6\7"
 *
 * Nothing is unpacked, and names are never used as paths: members are found by their exact names. A compressed or encrypted member is
 * APR_E_UNSUPPORTED. APR_E_DAMAGED: members outside the file, overlapping members, duplicate names, or no end record. */
#ifndef APR_FORMATS_ZIP_H
#define APR_FORMATS_ZIP_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdint.h>

typedef struct apr_zip_member {
    const char *name; /* [n_name], not terminated, any bytes */
    size_t n_name;
    const uint8_t *data; /* borrowed from the archive */
    uint64_t n_bytes;
} apr_zip_member;

typedef struct apr_zip {
    const apr_zip_member *members; /* [n], sorted by name */
    size_t n;
} apr_zip;

/* `where` names the file in messages. The table lives in the arena. */
apr_status apr_zip_read(apr_zip *zip, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena, apr_error *err);

/* The member with the name prefix + name, or NULL. */
const apr_zip_member *apr_zip_find(const apr_zip *zip, const char *prefix, size_t n_prefix, const char *name, size_t n_name);

#endif
