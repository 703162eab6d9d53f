/* text.h - how a text begins and ends. All texts are NUL-terminated. */
#ifndef APR_FORMATS_TEXT_H
#define APR_FORMATS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

static inline bool apr_begins_with(const char *text, const char *head) { return strncmp(text, head, strlen(head)) == 0; }

/* Also true if the text is nothing but the suffix. */
static inline bool apr_ends_with(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* The same in upper and lower case, as people name files. */
static inline bool apr_ends_with_any_case(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcasecmp(text + n - m, suffix) == 0;
}

/* The bytes before the ending; 0: the text does not end so, or is nothing but the suffix. */
static inline size_t apr_stem_of(const char *text, const char *suffix)
{
    return apr_ends_with(text, suffix) ? strlen(text) - strlen(suffix) : 0;
}

/* Is the word in the list, whose words are separated by single blanks? */
static inline bool apr_is_listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        if (length == n && strncmp(at, word, n) == 0) return true;
        at += length + (at[length] == ' ');
    }
    return false;
}

/* For qsort, of const char *. */
static inline int apr_compare_texts(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

#endif
