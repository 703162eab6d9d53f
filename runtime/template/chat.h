/* chat.h - one question to a model in its own chat template, ready for the answer. */
#ifndef APR_RUNTIME_CHAT_H
#define APR_RUNTIME_CHAT_H

#include "formats/model/vocab.h"
#include "runtime/template/template.h"

/* A user message (and a system message, or NULL) with add_generation_prompt, and the vocabulary's bos, eos and pad tokens as the
 * template's variables. now: the moment that strftime_now formats (see template.h). text is malloc'ed, and NULL on failure.
 * APR_E_UNSUPPORTED when the vocabulary has no template; else as apr_template_render. */
apr_status apr_chat_render(const apr_vocab *vocab, const char *system, const char *user, double now, char **text, size_t *n_bytes,
                           apr_error *err);
/* What a chat asks for, as JSON: messages as the template takes them (each has a role), tools (a list, or NULL), and more variables of the
 * template (an object, or NULL), which cannot take the place of the messages. */
typedef struct apr_chat_request {
    const cJSON *messages, *tools, *variables;
} apr_chat_request;

/* The same of such a request. */
apr_status apr_chat_render_messages(const apr_vocab *vocab, const apr_chat_request *request, double now, char **text, size_t *n_bytes,
                                    apr_error *err);

/* What ends an answer in a chat: the vocabulary's stop ids, and the token that the template writes after an assistant's message. */
typedef struct apr_chat_stops {
    int32_t ids[APR_MAX_STOP_IDS + 1];
    size_t n;
    int32_t added; /* the template's token where the vocabulary does not state it as a stop id; else -1 */
} apr_chat_stops;

/* Renders a question and its answer to see it. A template that does not render them, or writes no token there, adds none. APR_E_MEMORY. */
apr_status apr_chat_stops_of(const apr_vocab *vocab, apr_chat_stops *stops, apr_error *err);

#endif
