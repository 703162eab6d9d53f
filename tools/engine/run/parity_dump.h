/* parity_dump.h - `aprrun parity --dump`: the values of both backends as safetensors files.
 *
 * One file per layer and position. Its tensors are OPERATION.ref.NAME and OPERATION.BACKEND.NAME, in the order of the operations. */
#ifndef APR_TOOLS_PARITY_DUMP_H
#define APR_TOOLS_PARITY_DUMP_H

#include "formats/base/json.h"
#include "runtime/check/parity.h"

/* Set dir; the rest begins as zeros. */
typedef struct apr_parity_dump {
    const char *dir; /* NULL: nothing is written */
    char path[4096]; /* of the file that is being collected; empty: none */
    apr_json_text header;
    uint8_t *data;
    size_t n_bytes, capacity;
} apr_parity_dump;

/* Checks, before the work, that the files can be written there. dir may be NULL. */
apr_status apr_parity_dump_check(const char *dir, apr_error *err);
/* Adds a record. If it begins a new file, writes the one before. */
apr_status apr_parity_dump_add(apr_parity_dump *dump, const apr_parity_record *record, const char *backend, apr_error *err);
/* Writes the last file. */
apr_status apr_parity_dump_flush(apr_parity_dump *dump, apr_error *err);
void apr_parity_dump_close(apr_parity_dump *dump);

#endif
