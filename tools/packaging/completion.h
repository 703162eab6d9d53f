/* completion.h - what shells complete: verbs, options, and values. One file for each shell, made from the tables of the tools. */
#ifndef APR_PACKAGING_COMPLETION_H
#define APR_PACKAGING_COMPLETION_H

#include "tools/packaging/value_words.h"

/* For bash and zsh one file serves all tools; fish has one for each. */
void apr_completion_bash(FILE *out, const apr_tool *const *toolkit);
void apr_completion_zsh(FILE *out, const apr_tool *const *toolkit);
void apr_completion_fish(FILE *out, const apr_tool *tool);

/* --- the parts that they share --- */

/* Types and mixtures that can be written; GPUs by name: each once, separated by blanks. */
void apr_completion_types(FILE *out);
void apr_completion_gpus(FILE *out);
/* "--no-direct": how an option is typed, without its value. Returns text. */
char *apr_completion_option(const apr_option *option, char *text, size_t n_bytes);
/* Words that are separated by '|', separated by blanks. */
void apr_completion_words(FILE *out, const char *words);

#endif
