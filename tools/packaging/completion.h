/* completion.h - what shells complete: verbs, options, and values. One file for each shell, made from the tables of the tools. */
#ifndef APR_PACKAGING_COMPLETION_H
#define APR_PACKAGING_COMPLETION_H

#include "tools/packaging/value_words.h"

/* For bash and zsh one file serves all tools; fish has one for each, and needs `tool`. False: there is none for that shell. */
bool apr_completion(FILE *out, const char *shell, const apr_tool *const *toolkit, const apr_tool *tool);

#endif
