/* lengths.c - a list of numbers between commas. */
#include "tools/verbs/run/lengths.h"

#include "tools/cli/values.h"

#include <string.h>

static apr_status refuse(const char *option, const char *text, apr_error *err)
{
    return apr_fail(err, APR_E_USAGE,
                    "%s takes whole numbers from 0 to 1000000000 separated by commas, as in 512,2048 (at most %d), not '%s'", option,
                    APR_BENCH_MOST_LENGTHS, text);
}

apr_status apr_lengths_parse(apr_lengths *lengths, const char *option, const char *text, apr_error *err)
{
    char item[16];

    lengths->n = 0;
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        if (n >= sizeof item || lengths->n == APR_BENCH_MOST_LENGTHS) return refuse(option, text, err);
        memcpy(item, at, n);
        item[n] = '\0';
        int64_t *const length = &lengths->items[lengths->n++];
        if (!apr_parse_int(item, length) || *length < 0 || *length > 1000000000) return refuse(option, text, err);
        at += n;
        if (*at == '\0') return APR_OK;
    }
}
