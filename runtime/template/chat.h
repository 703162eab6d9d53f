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
/* The same of a JSON array of messages, as the template takes them: each has a role and a content. */
apr_status apr_chat_render_messages(const apr_vocab *vocab, const cJSON *messages, double now, char **text, size_t *n_bytes,
                                    apr_error *err);

#endif
