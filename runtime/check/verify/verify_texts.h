/* verify_texts.h - inputs of `aprrun verify`: a text, strings that are hard for tokenizers, and prompts. */
#ifndef APR_RUNTIME_VERIFY_TEXTS_H
#define APR_RUNTIME_VERIFY_TEXTS_H

#include <stddef.h>

/* Public-domain English prose, verse, a list and a little code: about 700 tokens. */
extern const char apr_verify_text[];

typedef struct apr_hard_string {
    const char *what, *text;
} apr_hard_string;
extern const apr_hard_string apr_hard_strings[];
extern const size_t apr_n_hard_strings;

extern const char *const apr_verify_prompts[];
extern const size_t apr_n_verify_prompts;

#endif
