/* text.h - numbers and foreign strings as a person reads them on a terminal. */
#ifndef APR_TOOLS_TEXT_H
#define APR_TOOLS_TEXT_H

#include <stdbool.h>
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
/* "17,240", "1.234", "0.00012": four digits, without an exponent from a millionth to a million millions */
char *apr_figure_text(char text[APR_SMALL_TEXT], double value);

/* n bytes of anyone's text made safe to print: control characters and bytes that are not UTF-8 become \n, \t, \x1b.
 * What does not fit is cut off between characters. Returns dst, always terminated. */
char *apr_clean_text(char *dst, size_t capacity, const char *text, size_t n_bytes);
/* The same, and cut to at most max_columns (3 or more), with "..." at the end where something is missing. */
char *apr_short_text(char *dst, size_t capacity, const char *text, size_t n_bytes, int max_columns);
/* Clean text cut to at most max_columns (3 or more), with "…" where something is missing. What stands before the first number goes
 * first, then the middle: tensors differ in the number of their layer and in the end of their name. */
char *apr_middle_text(char *dst, size_t capacity, const char *text, int max_columns);
/* The same as apr_clean_text for one argument of a printf: `text` itself where it is safe, else a copy that holds until this thread's eighth next call and is
 * cut off after 4,095 bytes. Paths and names of a stranger's files are printed by it. */
const char *apr_printable(const char *text);

/* Text that a model writes, on its way to a terminal, in pieces that may end within a character: line ends and tabs stay, other control
 * characters (also U+0080 to U+009F) become \x1b. Begins zeroed. */
typedef struct apr_terminal_text {
    char held; /* a '\r' or 0xc2 whose next byte decides; 0: none */
} apr_terminal_text;

enum { APR_TERMINAL_TEXT_GROWTH = 4 };
/* Fills dst, which holds at least (n_bytes + 1) * APR_TERMINAL_TEXT_GROWTH bytes; returns how many. The last piece gives back what was held;
 * it may be empty. */
size_t apr_terminal_clean(apr_terminal_text *state, char *dst, const char *text, size_t n_bytes, bool is_last);

/* Columns that valid UTF-8 takes on a terminal. */
int apr_text_columns(const char *text);

/* The choice of --color: 0 or less: on a terminal, unless NO_COLOR is set or TERM is dumb; 1: always; 2: never. */
void apr_color_set(int choice);

/* Begin and end of a style on a terminal that has them ("" elsewhere, and where NO_COLOR is set or TERM is dumb). */
const char *apr_bold(FILE *out);
const char *apr_dim(FILE *out);
const char *apr_green(FILE *out);
const char *apr_red(FILE *out);
const char *apr_plain(FILE *out);

#endif
