/* compare.h - `aprrun compare`: several versions of a model against one reference, as a table and as a page. */
#ifndef APR_VERBS_COMPARE_H
#define APR_VERBS_COMPARE_H

#include "formats/files/out.h"
#include "runtime/check/bootstrap.h"
#include "tools/report/sha256.h"
#include "tools/verbs/page.h"

enum { APR_COMPARE_MOST = 64, APR_COMPARE_TYPES = 256 };

/* What is measured of a candidate, and kept. */
typedef struct apr_compare_figures {
    double kl, same_top, perplexity, perplexity_ref;
    apr_interval kl_95; /* NaN: one window, no interval */
    int64_t n_positions, window;
    double decode, prompt; /* tokens per second; 0: not measured */
} apr_compare_figures;

typedef struct apr_compare_row {
    const char *path;
    char types[APR_COMPARE_TYPES];
    uint64_t n_bytes;          /* of its files */
    char sum[APR_SHA256_TEXT]; /* of their headers and lists of tensors */
    double bits;               /* per weight */
    apr_compare_figures figures;
    bool was_kept; /* the figures are those of an earlier run */
    bool fits;     /* on the GPU that was named, with some context */
    int64_t max_ctx;
    uint64_t needed_bytes; /* with the smallest usual context; both 0 where no GPU was named */
} apr_compare_row;

typedef struct apr_compare_shown {
    const char *ref, *text, *backend;
    const char *gpu; /* as it is called; NULL: none was named */
    int64_t window;
    bool has_speed;
    apr_compare_row *rows; /* [n], smallest first */
    size_t n;
} apr_compare_shown;

typedef enum {
    APR_COMPARE_SIZE,
    APR_COMPARE_BITS,
    APR_COMPARE_KL,
    APR_COMPARE_TOP,
    APR_COMPARE_PERPLEXITY,
    APR_COMPARE_DECODE,
    APR_COMPARE_PROMPT,
    APR_COMPARE_CONTEXT,
    APR_COMPARE_COLUMNS
} apr_compare_column;

/* As text or JSON. */
apr_status apr_compare_report(const apr_compare_shown *shown, apr_answer *answer, apr_error *err);

/* Marks a page of aprrun compare, in its head: a later run replaces only a file with this mark. */
#define APR_COMPARE_HTML_MARK "content=\"aprrun compare\""
apr_status apr_compare_html(const apr_compare_shown *shown, const apr_page_about *about, apr_out *page, apr_error *err);

#endif
