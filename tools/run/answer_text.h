/* answer_text.h - the text of an answer as its tokens come, cut into what can be shown already.
 *
 * A stop text may span tokens, and a token may end inside a character. So bytes that could be the beginning of a stop text, or of a
 * character that is not complete, are kept until what follows decides. */
#ifndef APR_TOOLS_ANSWER_TEXT_H
#define APR_TOOLS_ANSWER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Begins with the first three fields set, and else zeros. */
typedef struct apr_answer_text {
    const char *const *stops; /* [n_stops], none of them empty; borrowed */
    size_t n_stops;
    bool whole_characters; /* nothing is shown that ends inside a UTF-8 character */
    bool is_stopped;       /* a stop text came; what comes after it is dropped */
    char *bytes;           /* [n_bytes] of which the first n_shown have been given out */
    size_t n_bytes, n_shown, capacity;
} apr_answer_text;

/* More bytes. False: no memory. */
bool apr_answer_text_add(apr_answer_text *text, const char *bytes, size_t n_bytes);
/* What can be shown now, *n bytes; it holds until the next call of apr_answer_text_add. is_last: nothing follows, so nothing is kept. */
const char *apr_answer_text_show(apr_answer_text *text, bool is_last, size_t *n);
void apr_answer_text_close(apr_answer_text *text);

/* The first byte of the first stop text in bytes[from, n), or n. A stop text may begin up to its own length before `from`. */
size_t apr_find_stop_text(const char *const *stops, size_t n_stops, const char *bytes, size_t from, size_t n);

/* n bytes as UTF-8: each byte that belongs to no character, and each NUL, becomes U+FFFD. dst holds APR_VALID_TEXT_GROWTH times as many.
 * Returns how many. */
enum { APR_VALID_TEXT_GROWTH = 3 };
size_t apr_valid_text(char *dst, const char *bytes, size_t n_bytes);
/* The first byte that would become one; n_bytes: none. */
size_t apr_first_invalid(const char *bytes, size_t n_bytes);

#endif
