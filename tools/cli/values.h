/* values.h - strict parsers for values of options: all of the text must be the value. */
#ifndef APR_TOOLS_VALUES_H
#define APR_TOOLS_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False if the text is not exactly one such value, or if the value is out of the type's range. */
bool apr_parse_int(const char *text, int64_t *value);   /* 4096, -1, 131,072, 128k (1024 each) */
bool apr_parse_real(const char *text, double *value);   /* decimal, finite: no hex, no "inf" */
bool apr_parse_size(const char *text, uint64_t *value); /* bytes: 4096, 512M, 1.5G, 32GiB (1024^n), 32 GB (1000^n), no sign */
/* Index of text in "a|b|c", or -1. */
int apr_parse_choice(const char *text, const char *choices);

#endif
