/* mdoc.h - writes the text of manual pages in mdoc, the language of mandoc and groff: quotes what these would take for their own, and
 * breaks lines. */
#ifndef APR_PACKAGING_MDOC_H
#define APR_PACKAGING_MDOC_H

#include <stdio.h>

/* Prose: a new line for each sentence, and for each 76 columns. The first letter becomes a capital if `text` begins with a plain word, and
 * a full stop is added where none is. */
void apr_mdoc_sentence(FILE *out, const char *text);
/* Prose as it is. */
void apr_mdoc_text(FILE *out, const char *text);
/* One line for people to copy: every character as it is in ASCII. */
void apr_mdoc_literal(FILE *out, const char *line);
/* One argument of a macro. */
void apr_mdoc_argument(FILE *out, const char *text);

/* The beginning of a page. date: "2026-11-27". */
void apr_mdoc_start(FILE *out, const char *name, const char *section, const char *date, const char *summary);

#endif
