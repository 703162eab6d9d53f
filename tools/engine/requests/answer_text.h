/* answer_text.h - the text of an answer as its tokens come, and how much of it can be shown already.
 *
 * A stop text may span tokens, and a token may end inside a character. So bytes that may begin a stop text, and bytes of an incomplete
 * character, are held back until the next bytes decide. */
#ifndef APR_ENGINE_ANSWER_TEXT_H
#define APR_ENGINE_ANSWER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum { APR_MOST_STOP_TEXTS = 16 };

/* Set the first three fields; the rest begins as zeros. */
typedef struct apr_answer_text {
    const char *const *stops; /* [n_stops], none of them empty; borrowed */
    size_t n_stops;
    bool whole_characters; /* nothing is shown that ends inside a UTF-8 character */
    bool is_stopped;       /* a stop text has come; what follows it is dropped */
    char *bytes;           /* [n_bytes]; the first n_shown have been returned by apr_answer_text_show */
    size_t n_bytes, n_shown, capacity;
} apr_answer_text;

/* Appends bytes. False: no memory. */
bool apr_answer_text_add(apr_answer_text *text, const char *bytes, size_t n_bytes);
/* The next *n bytes that can be shown; valid until the next apr_answer_text_add. is_last: nothing follows, so nothing is held back. */
const char *apr_answer_text_show(apr_answer_text *text, bool is_last, size_t *n);
void apr_answer_text_close(apr_answer_text *text);

/* Index of the first stop text in bytes[from, n), or n. A stop text may begin up to its own length before `from`. */
size_t apr_find_stop_text(const char *const *stops, size_t n_stops, const char *bytes, size_t from, size_t n);

/* Copies n_bytes as valid UTF-8: each byte that is not part of a character, and each NUL, becomes U+FFFD.
 * dst: [APR_VALID_TEXT_GROWTH * n_bytes]. Returns the number of bytes written. */
enum { APR_VALID_TEXT_GROWTH = 3 };
size_t apr_valid_text(char *dst, const char *bytes, size_t n_bytes);
/* Index of the first byte that would become U+FFFD; n_bytes: none. */
size_t apr_first_invalid(const char *bytes, size_t n_bytes);

#endif
