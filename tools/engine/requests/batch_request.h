/* batch_request.h - reads one line of a batch: a JSON object with a prompt and its settings.
 *
 *     {"id": "a1", "prompt": "In the beginning", "max_tokens": 20, "temperature": 0.7, "top_p": 0.9, "seed": 1, "stop": ["\n\n"]}
 *     {"id": 3, "prompt": "Once", "temperature": 1, "top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1, "presence_penalty": 0.5}
 *     {"id": 2, "messages": [{"role": "user", "content": "Why?"}]}
 *     {"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"model": "-", "prompt": "In the"}}
 *
 * A request has exactly one of prompt and messages. Synonyms: `custom_id` is `id`, `max_completion_tokens` is `max_tokens`,
 * `repetition_penalty` is `repeat_penalty`, `repeat_last_n` is `repeat_last`. Fields of OpenAI's batches that have no effect (n: 1,
 * stream: false, null) are ignored; tools and chat_template_kwargs go to the chat template. `url` decides whether the body has a prompt or
 * messages. Any other field would change the request, and is an error that names it. */
#ifndef APR_TOOLS_BATCH_REQUEST_H
#define APR_TOOLS_BATCH_REQUEST_H

#include "formats/base/json.h"
#include "runtime/session/sample.h"
#include "tools/engine/requests/answer_text.h"

enum { APR_BATCH_MOST_STOPS = APR_MOST_STOP_TEXTS };

/* Shape of the answers. AUTO: OpenAI's if the request has that shape. */
typedef enum { APR_BATCH_AUTO, APR_BATCH_APRKIT, APR_BATCH_OPENAI } apr_batch_format;

typedef struct apr_batch_request {
    cJSON *json;
    char *id;               /* as JSON, malloc'ed; NULL: it has none */
    const char *prompt;     /* or NULL */
    const cJSON *messages;  /* or NULL: an array of objects with a role; contents that were lists of texts are strings */
    const cJSON *tools;     /* or NULL: an array */
    const cJSON *variables; /* or NULL: more of them for the chat template, an object */
    const char *model;      /* as the line states it, or NULL */
    const char *url;        /* the same */
    const char *param;      /* after a failure: the field that is wrong; NULL: it is not one field */
    bool is_openai;         /* its answer has the shape of OpenAI's batches */
    bool says_sampling;     /* it has a temperature or a top_p */
    bool leaves_tools_out;  /* tool_choice is "none" */
    int64_t max_tokens;
    apr_sample_options sampling;
    const char *stops[APR_BATCH_MOST_STOPS];
    size_t n_stops;
} apr_batch_request;

/* Defaults, for what a line does not say. */
typedef struct apr_batch_defaults {
    int64_t max_tokens;
    apr_sample_options sampling;
    const char *const *stops; /* [n_stops], at most APR_BATCH_MOST_STOPS */
    size_t n_stops;
    apr_batch_format format;
    const apr_sample_options *of_model; /* generation_config.json's, for lines in OpenAI's shape; or NULL */
} apr_batch_defaults;

/* APR_E_DAMAGED: not JSON, or not an object. APR_E_USAGE: a field is missing, unknown, or has a wrong value. The id is set if it could be
 * read, also on failure. Close it in any case. */
apr_status apr_batch_request_read(apr_batch_request *request, const char *text, size_t n_bytes, const apr_batch_defaults *standard,
                                  apr_error *err);
void apr_batch_request_close(apr_batch_request *request);

/* Renames the role "developer", OpenAI's newer name of "system", if the chat template does not know it: the template would leave the
 * message out, or write a role that the model has never seen. */
apr_status apr_batch_request_rename_developer(apr_batch_request *request, const char *chat_template, apr_error *err);

/* For chat templates that do not take a content of null: gives messages with tool calls an empty content. *changed: at least one. */
apr_status apr_batch_request_fill_contents(apr_batch_request *request, bool *changed, apr_error *err);

#endif
