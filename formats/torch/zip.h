/* zip.h - the table of a zip archive whose members are stored as they are, which is how torch.save makes one; zip64 included.
 *
 *   local header   "PK\3\4", then a name, then the member's bytes: only where these begin is read from it
 *   ...
 *   central table  one "PK\1\2" for each member: its name, its size, where its local header is
 *   end            "PK\5\6", how many entries and where the table is; in large files both stand in "PK\6\6", found by "PK\6\7"
 *
 * Nothing is unpacked and no name is ever a path: members are found by their exact names. A member that is compressed or encrypted is
 * APR_E_UNSUPPORTED. APR_E_DAMAGED: members that lie outside the file or over each other, or share a name; no end. */
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
    const apr_zip_member *members; /* [n], by name */
    size_t n;
} apr_zip;

/* `where` names the file in sentences. The table lives in the arena. */
apr_status apr_zip_read(apr_zip *zip, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena, apr_error *err);

/* The member called prefix + name, or NULL. */
const apr_zip_member *apr_zip_find(const apr_zip *zip, const char *prefix, size_t n_prefix, const char *name, size_t n_name);

#endif
