/* nearest.h - which of the words that exist was probably meant by one that does not. */
#ifndef APR_TOOLS_NEAREST_H
#define APR_TOOLS_NEAREST_H

#include <stddef.h>

/* Edits that turn one word into the other: a letter put in, left out or changed, two neighbours swapped. Words longer than
 * APR_NEAREST_MAX letters are far from everything: INT_MAX. */
enum { APR_NEAREST_MAX = 48 };
int apr_edit_distance(const char *a, const char *b);

/* The word nearest to `word`, the first of equals; NULL when none is near. Near is one edit for words of 5 to 7 letters, two for longer
 * ones, none for shorter ones; and, where there is nothing so near, the same first four letters. Dashes are not counted as letters. */
const char *apr_nearest(const char *word, const char *const *words, size_t n_words);

#endif
