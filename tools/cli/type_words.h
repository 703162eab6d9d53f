/* type_words.h - a type or mixture as people spell it: "Q4_K_M", "q4km", "fp16", "int8", "4-bit". */
#ifndef APR_TOOLS_TYPE_WORDS_H
#define APR_TOOLS_TYPE_WORDS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    APR_TYPE_UNKNOWN,
    APR_TYPE_IS,        /* another spelling of `name` */
    APR_TYPE_TURNED,    /* not a type's name; `name` is what is meant */
    APR_TYPE_NAMED,     /* several may be meant: `why` names them, `name` is the usual one */
    APR_TYPE_READ_ONLY, /* read here, not written: `name` is the smallest that is */
    APR_TYPE_KEPT,      /* the types that the model has: "auto", "copy" */
} apr_type_kind;

typedef struct apr_type_word {
    apr_type_kind kind;
    const char *name, *why; /* static; NULL where there is none */
} apr_type_word;

/* Case, '-', '_', '.' and blanks do not count. */
apr_type_word apr_type_spelled(const char *text);

enum { APR_TYPE_FILE_NAME = 24 };
/* "Q4_K_M" of "q4_k_m", as files are named by it. Returns text. */
char *apr_type_file_name(char text[APR_TYPE_FILE_NAME], const char *name);

#endif
