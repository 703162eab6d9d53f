/* chat.h - renders a chat with the model's chat template, and finds the tokens that end an answer. */
#ifndef APR_RUNTIME_CHAT_H
#define APR_RUNTIME_CHAT_H

#include "formats/vocab/vocab.h"
#include "runtime/template/template.h"

/* Renders a user message (and a system message, or NULL) with add_generation_prompt. The vocabulary's bos, eos and pad tokens are
 * variables of the template. now: the time that strftime_now formats (see template.h). text is malloc'ed, and NULL on failure.
 * APR_E_UNSUPPORTED if the vocabulary has no template; other errors as for apr_template_render. */
apr_status apr_chat_render(const apr_vocab *vocab, const char *system, const char *user, double now, char **text, size_t *n_bytes,
                           apr_error *err);
/* The variables of a chat, as JSON: messages (each has a role), tools (a list, or NULL), and further variables of the template (an object,
 * or NULL), of which "messages" is ignored. */
typedef struct apr_chat_request {
    const cJSON *messages, *tools, *variables;
} apr_chat_request;

/* The same for such a request. */
apr_status apr_chat_render_messages(const apr_vocab *vocab, const apr_chat_request *request, double now, char **text, size_t *n_bytes,
                                    apr_error *err);

/* The ids that end an answer in a chat: the vocabulary's stop ids, and the token that the template writes after an assistant message. */
typedef struct apr_chat_stops {
    int32_t ids[APR_MAX_STOP_IDS + 1];
    size_t n;
    int32_t added; /* the template's token, if the vocabulary does not state it as a stop id; else -1 */
} apr_chat_stops;

/* Renders a question and an answer to find that token. If rendering fails, or no token follows the answer, none is added. The only error
 * is APR_E_MEMORY. */
apr_status apr_chat_stops_of(const apr_vocab *vocab, apr_chat_stops *stops, apr_error *err);

#endif
