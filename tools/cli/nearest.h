/* nearest.h - finds the known word that a misspelled word probably means. */
#ifndef APR_TOOLS_NEAREST_H
#define APR_TOOLS_NEAREST_H

#include <stddef.h>

/* Edit distance: a letter inserted, deleted or changed, or two neighbours swapped, counts as one edit. INT_MAX for words longer than
 * APR_NEAREST_MAX letters. */
enum { APR_NEAREST_MAX = 48 };
int apr_edit_distance(const char *a, const char *b);

/* The word nearest to `word`; the first one on a tie; NULL if none is near. Near means at most one edit for words of 5 to 7 letters,
 * two for longer words, none for shorter words. If there is none, a word with the same first four letters counts. Dashes are not
 * letters. */
const char *apr_nearest(const char *word, const char *const *words, size_t n_words);

#endif
