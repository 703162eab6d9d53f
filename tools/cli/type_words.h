/* type_words.h - recognizes other spellings of types and mixtures: "Q4_K_M", "q4km", "fp16", "int8", "4-bit". */
#ifndef APR_TOOLS_TYPE_WORDS_H
#define APR_TOOLS_TYPE_WORDS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    APR_TYPE_UNKNOWN,
    APR_TYPE_IS,        /* another spelling of `name` */
    APR_TYPE_REPLACED,  /* not a type's name; it is replaced by `name` */
    APR_TYPE_AMBIGUOUS, /* ambiguous: `why` lists the candidates, `name` is the usual one */
    APR_TYPE_READ_ONLY, /* can be read but not written; `name` is the nearest type for any model that can be written */
    APR_TYPE_KEPT,      /* "auto", "copy": keep the model's types */
} apr_type_kind;

typedef struct apr_type_word {
    apr_type_kind kind;
    const char *name, *why; /* static strings, or NULL */
} apr_type_word;

/* Case, '-', '_', '.' and blanks are ignored. */
apr_type_word apr_type_spelled(const char *text);

enum { APR_TYPE_FILE_NAME = 24 };
/* "q4_k_m" -> "Q4_K_M", as it appears in file names. Returns text. */
char *apr_type_file_name(char text[APR_TYPE_FILE_NAME], const char *name);

#endif
