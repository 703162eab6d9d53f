/* text.h - how a text begins and ends, and lists of texts. All texts are NUL-terminated. */
#ifndef APR_FORMATS_TEXT_H
#define APR_FORMATS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

static inline bool apr_begins_with(const char *text, const char *head) { return strncmp(text, head, strlen(head)) == 0; }

/* What follows `head`; the text itself if it does not begin with it. */
static inline const char *apr_text_after(const char *text, const char *head)
{
    return apr_begins_with(text, head) ? text + strlen(head) : text;
}

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

/* Is the word in the list, whose words are separated by blanks? NULL is a list without words. */
static inline bool apr_has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; n > 0 && at != NULL && *at != '\0'; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, word, n) == 0) return true;
        at += length;
    }
    return false;
}

/* A list of texts for apr_is_any_of: APR_NAMES("a", "b"). */
#define APR_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Is the text in the list, which ends with NULL? NULL is a list without texts. */
static inline bool apr_is_any_of(const char *text, const char *const *list)
{
    while (list != NULL && *list != NULL && strcmp(*list, text) != 0) list++;
    return list != NULL && *list != NULL;
}

/* For qsort, of const char *. */
static inline int apr_compare_texts(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

#endif
