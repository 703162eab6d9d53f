/* runtime/check/integrity.h - reads a model's files once and checks checksums, values and small files.
 *
 * Opening a model already checks the structure (counts, extents, names). This check computes every checksum that the container states,
 * decodes every value to find NaN and infinity, and parses the small files that a loader will parse. It uses all cores. Each problem is
 * one entry of `findings`; no entries means that the container shows no damage. */
#ifndef APR_RUNTIME_INTEGRITY_H
#define APR_RUNTIME_INTEGRITY_H

#include "formats/apr/apr.h"
#include "formats/base/progress.h"
#include "formats/tensor/model.h"

typedef enum {
    APR_FOUND_CHECKSUM,   /* stated and actual CRC of a tensor differ; name NULL: the CRC of the whole file */
    APR_FOUND_ATTACHMENT, /* a small file does not parse: see text */
    APR_FOUND_NOT_FINITE, /* n of n_values are NaN or infinite, the first at index first */
    APR_N_FOUND
} apr_integrity_result_kind;

typedef struct apr_integrity_result {
    apr_integrity_result_kind kind;
    const char *name; /* of the tensor or the attached file; NULL: the file as a whole */
    uint32_t stated, actual;
    int64_t n, n_values, first;
    char text[256]; /* why a small file does not parse, or empty */
} apr_integrity_result;

typedef struct apr_integrity {
    apr_integrity_result *findings; /* malloc'ed */
    size_t n_findings, n_of[APR_N_FOUND];
    size_t n_stated, n_good; /* tensor checksums: stated by the file, and correct */
    apr_footer footer;       /* APR only */
    int64_t n_values, n_nonfinite;
    uint64_t file_bytes;
} apr_integrity;

/* An error status means that reading failed; damage is reported in findings. progress may be NULL. A failed or zeroed result may be
 * closed. The model must outlive it. */
apr_status apr_integrity_check(apr_integrity *integrity, const apr_model *model, const apr_progress *progress, apr_error *err);
void apr_integrity_close(apr_integrity *integrity);

#endif
