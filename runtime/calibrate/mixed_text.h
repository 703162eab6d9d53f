/* runtime/calibrate/mixed_text.h - windows of two texts, taken in turn, each text in its own shuffled order, as often as needed.
 *
 * The order depends on the numbers of windows and the seed only. If one text is empty, all windows are of the other. */
#ifndef APR_RUNTIME_CALIBRATE_MIXED_TEXT_H
#define APR_RUNTIME_CALIBRATE_MIXED_TEXT_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { APR_MIXED_TEXTS = 2 };

typedef struct apr_text_windows {
    int32_t *ids; /* [n_windows * window]; owned */
    int64_t n_windows;
} apr_text_windows;

typedef struct apr_mixed_text {
    apr_text_windows texts[APR_MIXED_TEXTS];
    int64_t window; /* tokens */
    int64_t *order; /* the windows of the first text, then those of the second; owned */
} apr_mixed_text;

/* Copies the whole windows among the n ids. */
apr_status apr_text_windows_copy(apr_text_windows *to, const int32_t *ids, int64_t n, int64_t window, apr_error *err);
void apr_text_windows_close(apr_text_windows *windows);

/* Call it when the texts are filled in. APR_E_USAGE: they have no window. A zeroed struct may be closed. */
apr_status apr_mixed_text_shuffle(apr_mixed_text *mixed, uint64_t seed, apr_error *err);
void apr_mixed_text_close(apr_mixed_text *mixed);

/* The i-th window, from 0. */
const int32_t *apr_mixed_text_window(const apr_mixed_text *mixed, int64_t i);

#endif
