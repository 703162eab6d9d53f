/* manual.h - the manual pages, made from the tables of the tools. */
#ifndef APR_PACKAGING_MANUAL_H
#define APR_PACKAGING_MANUAL_H

#include "tools/cli/cli.h"

/* The page of a tool (command NULL), or of one of its verbs. */
void apr_manual_command(FILE *out, const apr_tool *tool, const apr_command *command, const char *date);
/* aprkit(7): models, types, numbers, exit codes, files; and aprkit-words(7): options and verbs of other programs. */
void apr_manual_overview(FILE *out, const apr_tool *const *toolkit, const char *date);
void apr_manual_words(FILE *out, const apr_tool *const *toolkit, const char *date);

#endif
