/* runtime/check/subject.h - a model under test: encodes and decodes text, and generates answers.
 *
 * All pointers are borrowed from the caller. Functions that evaluate change the session's position. */
#ifndef APR_RUNTIME_SUBJECT_H
#define APR_RUNTIME_SUBJECT_H

#include "runtime/session/session.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct apr_subject {
    const char *path; /* name in messages */
    const apr_vocab *vocab;
    const apr_tokenizer *tokenizer; /* NULL: the model has no vocabulary; each byte of a text is then used as a token id */
    apr_session *session;
    double now; /* local time in seconds since 1970, for templates that print today's date */
} apr_subject;

/* Renders the model's chat template with one user message (and a system message, or NULL) and the generation prompt. malloc'ed.
 * APR_E_UNSUPPORTED: the model has no chat template. */
apr_status apr_subject_chat(const apr_subject *subject, const char *system, const char *user, char **text, size_t *n_bytes, apr_error *err);

/* Encodes text to ids, malloc'ed. Control tokens written in the text (as in a rendered chat) are parsed. */
apr_status apr_subject_encode(const apr_subject *subject, const char *text, size_t n_bytes, bool add_special, int32_t **ids, size_t *n_ids,
                              apr_error *err);

/* Encodes a text that is evaluated in windows: adds only the begin token (BOS), if the model asks for one. */
apr_status apr_subject_encode_text(const apr_subject *subject, const char *text, size_t n_bytes, int32_t **ids, size_t *n_ids,
                                   apr_error *err);
/* The begin token that the model asks for, or -1. */
int32_t apr_begin_token(const apr_vocab *vocab);
/* Replaces the first token of each window by the begin token, because each begins with an empty KV cache; llama.cpp does the same. */
void apr_set_window_bos(const apr_vocab *vocab, int32_t *ids, size_t n_ids, int64_t window);
/* Encodes a text for two models that are compared; subject is the reference, whose tokenizer is used. The begin token is added only if
 * both models ask for one, so that a model without one never reads it. */
apr_status apr_subject_encode_shared(const apr_subject *subject, const apr_vocab *other, const char *text, size_t n_bytes, int32_t **ids,
                                     size_t *n_ids, apr_error *err);
/* A copy of ids after apr_set_window_bos for the model of `vocab`, malloc'ed. */
apr_status apr_ids_with_window_bos(const apr_vocab *vocab, const int32_t *ids, size_t n_ids, int64_t window, int32_t **own, apr_error *err);

/* A prompt (borrowed) and its greedy continuation (malloc'ed), which includes the stop id that ended it. */
typedef struct apr_continuation {
    const int32_t *prompt;
    size_t n_prompt;
    int32_t *ids;
    size_t n_ids;
} apr_continuation;

/* Continues n prompts, each from position 0, by at most `limit` ids. On the host several prompts are sequences of a session of their own,
 * if there is memory for it: each weight is then read once for several tokens. A prompt gets the ids that it gets alone, because its
 * logits are the same to the last bit. Otherwise the subject's session continues one prompt after another. The caller frees the ids, also
 * after an error. */
apr_status apr_subject_continue(const apr_subject *subject, apr_continuation *all, size_t n, size_t limit, apr_error *err);

/* Checks that every token id stands for the same bytes in two models. Control tokens are compared as text, unused ids have no bytes. The
 * formats of the two files may differ. APR_E_UNSUPPORTED, with the first id that differs. Sessions are not needed. */
apr_status apr_vocabularies_agree(const apr_subject *a, const apr_subject *b, apr_error *err);

#endif
