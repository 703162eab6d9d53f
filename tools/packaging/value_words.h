/* value_words.h - what the words for operands and values in help mean ("MODEL", "SIZE"), for manual pages and for completion. */
#ifndef APR_PACKAGING_VALUE_WORDS_H
#define APR_PACKAGING_VALUE_WORDS_H

#include "tools/cli/cli.h"

/* What a shell offers for a value. */
typedef enum {
    APR_OFFER_NOTHING, /* numbers, texts and names that only the user knows */
    APR_OFFER_MODEL,   /* files of models, folders, and ids of the hub's cache */
    APR_OFFER_FILE,    /* files with the suffixes in `detail`, separated by '|'; NULL: all files */
    APR_OFFER_FOLDER,
    APR_OFFER_TYPE,  /* types and mixtures */
    APR_OFFER_GPU,   /* the GPUs that aprplan knows */
    APR_OFFER_WORDS, /* the words in `detail`, separated by '|' */
} apr_offer;

/* The first row that applies is used. */
typedef struct apr_value_word {
    const char *word; /* as help prints it; NULL ends the table */
    const char *of;   /* applies to these verbs (operands) or options (values), separated by blanks, "-": without a verb; NULL: any */
    apr_offer offer;
    const char *detail;
    const char *meaning; /* operands: what it is, for the manual page */
} apr_value_word;

/* The i-th word of a command's usage, such as "[TEXT...]", without brackets and dots, in `word`. repeats: it had dots. False: there is no
 * such operand. */
enum { APR_OPERAND_WORD = 64 };
bool apr_operand_word(const apr_command *command, size_t i, char word[APR_OPERAND_WORD], bool *repeats);

/* NULL: the table has no such word, which is a mistake in it. */
const apr_value_word *apr_operand_meaning(const apr_command *command, const char *word);
/* A flag has no value. For a choice, a row whose `detail` is its words. */
apr_value_word apr_option_value(const apr_option *option);

#endif
