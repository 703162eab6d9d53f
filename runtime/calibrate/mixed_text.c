/* mixed_text.c - see mixed_text.h. */
#include "runtime/calibrate/mixed_text.h"

#include "formats/base/random.h"

#include <stdlib.h>
#include <string.h>

apr_status apr_text_windows_copy(apr_text_windows *to, const int32_t *ids, int64_t n, int64_t window, apr_error *err)
{
    const size_t n_bytes = (size_t)(n / window * window) * sizeof *ids;

    *to = (apr_text_windows){.ids = malloc(n_bytes + 1), .n_windows = n / window};
    if (to->ids == NULL) return apr_no_memory(err, "the tokens of a text");
    memcpy(to->ids, ids, n_bytes);
    return APR_OK;
}

void apr_text_windows_close(apr_text_windows *windows)
{
    free(windows->ids);
    *windows = (apr_text_windows){0};
}

static void shuffle(int64_t *order, int64_t n, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t k = (int64_t)(apr_random(state) % (uint64_t)(i + 1)), was = order[i];
        order[i] = order[k];
        order[k] = was;
    }
}

apr_status apr_mixed_text_shuffle(apr_mixed_text *mixed, uint64_t seed, apr_error *err)
{
    const int64_t n_first = mixed->texts[0].n_windows, n_second = mixed->texts[1].n_windows;

    if (n_first + n_second == 0)
        return apr_fail(err, APR_E_USAGE, "a text to train on needs at least one window of %lld tokens", (long long)mixed->window);
    free(mixed->order);
    mixed->order = malloc((size_t)(n_first + n_second) * sizeof *mixed->order);
    if (mixed->order == NULL) return apr_no_memory(err, "the order of windows");
    shuffle(mixed->order, n_first, &seed);
    shuffle(mixed->order + n_first, n_second, &seed);
    return APR_OK;
}

void apr_mixed_text_close(apr_mixed_text *mixed)
{
    for (int i = 0; i < APR_MIXED_TEXTS; i++) apr_text_windows_close(&mixed->texts[i]);
    free(mixed->order);
    *mixed = (apr_mixed_text){0};
}

const int32_t *apr_mixed_text_window(const apr_mixed_text *mixed, int64_t i)
{
    const int64_t n_first = mixed->texts[0].n_windows, n_second = mixed->texts[1].n_windows;
    const bool are_both = n_first > 0 && n_second > 0;
    const int k = are_both ? (int)(i % 2) : n_first == 0;
    const int64_t at = (are_both ? i / 2 : i) % mixed->texts[k].n_windows;

    return mixed->texts[k].ids + mixed->order[k == 0 ? at : n_first + at] * mixed->window;
}
