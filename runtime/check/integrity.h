/* runtime/check/integrity.h - all of a model's file, read once: is it what was written, and is every value a number?
 *
 * Opening has checked the structure already (counts, extents, names). Here every checksum that the container states is computed, every
 * value decoded, and the small files that a loader will parse are parsed, on all cores. The report holds findings; a model without
 * findings is as good as its container can tell. */
#ifndef APR_RUNTIME_INTEGRITY_H
#define APR_RUNTIME_INTEGRITY_H

#include "formats/apr/apr.h"
#include "formats/base/progress.h"
#include "formats/model/model.h"

typedef enum {
    APR_FOUND_CHECKSUM,   /* stated and actual CRC of a tensor; of the whole file where no tensor is named */
    APR_FOUND_ATTACHMENT, /* a small file that does not parse: text */
    APR_FOUND_NOT_FINITE, /* n of n_values, the first at index first */
    APR_N_FOUND
} apr_finding_kind;

typedef struct apr_finding {
    apr_finding_kind kind;
    const char *name; /* of the tensor or the attached file; NULL: the file as a whole */
    uint32_t stated, actual;
    int64_t n, n_values, first;
    char text[256]; /* why a small file does not parse, or empty */
} apr_finding;

typedef struct apr_integrity {
    apr_finding *findings; /* malloc'ed */
    size_t n_findings, n_of[APR_N_FOUND];
    size_t n_stated, n_good; /* checksums of tensors */
    apr_footer footer;       /* APR only */
    int64_t n_values, n_nonfinite;
    uint64_t file_bytes;
} apr_integrity;

/* A status is what kept it from reading; damage is a finding. progress may be NULL. A failed or zeroed one may be closed. The model must
 * outlive it. */
apr_status apr_integrity_check(apr_integrity *integrity, const apr_model *model, const apr_progress *progress, apr_error *err);
void apr_integrity_close(apr_integrity *integrity);

#endif
