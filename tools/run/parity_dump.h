/* parity_dump.h - `aprrun parity --dump`: what both backends made, kept as safetensors files.
 *
 * One file a layer and position, in the order in which the operations come; in it OPERATION.ref.NAME and OPERATION.BACKEND.NAME. */
#ifndef APR_TOOLS_PARITY_DUMP_H
#define APR_TOOLS_PARITY_DUMP_H

#include "formats/base/json.h"
#include "runtime/check/parity.h"

/* Zeroed but for dir. */
typedef struct apr_parity_dump {
    const char *dir; /* NULL: nothing is kept */
    char path[4096]; /* of the file that is being collected; empty: none */
    apr_json_text header;
    uint8_t *data;
    size_t n_bytes, capacity;
} apr_parity_dump;

/* Can the files be written there? Known before the work. dir may be NULL. */
apr_status apr_parity_dump_check(const char *dir, apr_error *err);
/* Writes the file before this one when a new one begins. */
apr_status apr_parity_dump_add(apr_parity_dump *dump, const apr_parity_record *record, const char *backend, apr_error *err);
/* The last file. */
apr_status apr_parity_dump_flush(apr_parity_dump *dump, apr_error *err);
void apr_parity_dump_close(apr_parity_dump *dump);

#endif
