/* text.h - numbers and foreign strings as a person reads them on a terminal. */
#ifndef APR_TOOLS_TEXT_H
#define APR_TOOLS_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { APR_SMALL_TEXT = 32 }; /* enough for a size or a count */

/* "812 B", "1.50 KiB", "3.42 MiB", "16.00 GiB": two decimals, powers of 1024. Each returns text. */
char *apr_size_text(char text[APR_SMALL_TEXT], uint64_t n_bytes);
/* "1,712,896" */
char *apr_count_text(char text[APR_SMALL_TEXT], int64_t n);
/* "1.71 M", "7.62 B"; "512" below a thousand */
char *apr_magnitude_text(char text[APR_SMALL_TEXT], int64_t n);

/* n bytes of anyone's text made safe to print: control characters and bytes that are not UTF-8 become \n, \t, \x1b.
 * What does not fit is cut off between characters. Returns dst, always terminated. */
char *apr_clean_text(char *dst, size_t capacity, const char *text, size_t n_bytes);
/* The same, and cut to at most max_columns (3 or more), with "..." at the end where something is missing. */
char *apr_short_text(char *dst, size_t capacity, const char *text, size_t n_bytes, int max_columns);
/* Columns that valid UTF-8 takes on a terminal. */
int apr_text_columns(const char *text);

/* Bold on a terminal, unless NO_COLOR is set: begin and end of a heading, "" elsewhere. */
const char *apr_bold(FILE *out);
const char *apr_plain(FILE *out);

#endif
