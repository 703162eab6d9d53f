/* foreign_help.h - the table of other programs' options and verbs in words, for `TOOL help words` and its manual page. */
#ifndef APR_TOOLS_FOREIGN_HELP_H
#define APR_TOOLS_FOREIGN_HELP_H

#include "tools/cli/cli.h"
#include "tools/cli/foreign_words.h"

/* Whether a row is about this tool. */
bool apr_foreign_is_of(const apr_foreign_word *word, const apr_tool *tool);

/* Writes a row's spellings and what they mean into `text`: "-n, --predict X" and "same as --tokens X". Return text, which is cut if it does
 * not fit. */
char *apr_foreign_spellings(const apr_foreign_word *word, char *text, size_t n_bytes);
char *apr_foreign_meaning(const apr_foreign_word *word, char *text, size_t n_bytes);

void apr_foreign_print(const apr_tool *tool, FILE *out);

#endif
