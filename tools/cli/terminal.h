/* terminal.h - what a stream's terminal is like, and lines that fit it.
 *
 * On a terminal no line is wider than it: tables are made to fit (table.h), help is set to the width (usage.h), and other lines are
 * folded between words here. A line that is folded goes on two columns to the right of its own indent. A word that is wider than the
 * terminal stays whole. Where a stream is not a terminal, nothing is folded or shortened: scripts see each line as it was printed. */
#ifndef APR_TOOLS_TERMINAL_H
#define APR_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Columns of the terminal that `out` writes to: as the terminal says, else $COLUMNS, else 80; 0: it is not a terminal. */
int apr_terminal_columns(FILE *out);
bool apr_is_terminal(FILE *out);

/* From here on lines on stdout and stderr are folded, where these are terminals. Called once, before anything is printed. */
void apr_terminal_start(void);
/* Text that a model writes is not folded: between (false) and (true) stdout passes everything on as it is. */
void apr_terminal_fold(bool on);

/* One stream's fold, for tests. Begins zeroed with `columns` set. */
typedef struct apr_fold {
    int columns;        /* of the terminal */
    int column, indent; /* of the line that is being printed: where it stands, and how it began */
    bool has_begun;     /* something else than blanks was printed on it */
} apr_fold;

/* Writes text to `out` with line ends where a word would pass the last column. A call ends between words. */
void apr_fold_write(apr_fold *fold, const char *text, size_t n_bytes, FILE *out);

#endif
