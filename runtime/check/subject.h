/* runtime/check/subject.h - a model that is judged by what it says: text in, token ids or text out.
 *
 * Everything is borrowed from whoever opened the model; the session is used, and at another position afterwards. */
#ifndef APR_RUNTIME_SUBJECT_H
#define APR_RUNTIME_SUBJECT_H

#include "runtime/session/session.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct apr_subject {
    const char *path; /* as messages name it */
    const apr_vocab *vocab;
    const apr_tokenizer *tokenizer; /* NULL: it has no vocabulary, and the bytes of a text stand for its tokens */
    apr_session *session;
    double now; /* seconds since 1970 as the clock on the wall says, for templates that print today's date */
} apr_subject;

/* The model's own chat template around one user message (and a system message, or NULL), ready for the answer. malloc'ed. APR_E_UNSUPPORTED
 * when it has none. */
apr_status apr_subject_chat(const apr_subject *subject, const char *system, const char *user, char **text, size_t *n_bytes, apr_error *err);

/* Text with control tokens written out (as a rendered chat is) to ids, malloc'ed. */
apr_status apr_subject_encode(const apr_subject *subject, const char *text, size_t n_bytes, bool add_special, int32_t **ids, size_t *n_ids,
                              apr_error *err);

/* A text that is evaluated in windows: as above with nothing added but the begin token where the model asks for one. */
apr_status apr_subject_encode_text(const apr_subject *subject, const char *text, size_t n_bytes, int32_t **ids, size_t *n_ids,
                                   apr_error *err);
/* The begin token that the model asks for, or -1. */
int32_t apr_begin_token(const apr_vocab *vocab);
/* Puts it in place of the first token of each window, because each is evaluated from nothing; llama.cpp does the same. */
void apr_begin_windows(const apr_vocab *vocab, int32_t *ids, size_t n_ids, int64_t window);
/* For two models that are compared, the reference first. The ids of one text are the reference's; the begin token is put in front of them
 * only where both models ask for one, so that a model that asks for none never reads one. */
apr_status apr_subject_encode_shared(const apr_subject *subject, const apr_vocab *other, const char *text, size_t n_bytes, int32_t **ids,
                                     size_t *n_ids, apr_error *err);
/* ids in windows as the model of `vocab` reads them, malloc'ed. */
apr_status apr_windows_of(const apr_vocab *vocab, const int32_t *ids, size_t n_ids, int64_t window, int32_t **own, apr_error *err);

/* Ids as text, malloc'ed; without a vocabulary as numbers with spaces between them. */
apr_status apr_subject_decode(const apr_subject *subject, const int32_t *ids, size_t n_ids, char **text, size_t *n_bytes, apr_error *err);

/* The greedy continuation of a prompt from nothing: at most `limit` ids (malloc'ed), the stop id that ended it included. */
apr_status apr_subject_continue(const apr_subject *subject, const int32_t *prompt, size_t n_prompt, size_t limit, int32_t **ids,
                                size_t *n_ids, apr_error *err);

#endif
