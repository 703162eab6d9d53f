/* batch_request.h - one line of a batch: an object that says what is asked for.
 *
 *     {"id": "a1", "prompt": "In the beginning", "max_tokens": 20, "temperature": 0.7, "top_p": 0.9, "seed": 1, "stop": ["\n\n"]}
 *     {"id": 3, "prompt": "Once", "temperature": 1, "top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1, "presence_penalty": 0.5}
 *     {"id": 2, "messages": [{"role": "user", "content": "Why?"}]}
 *     {"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"model": "-", "prompt": "In the"}}
 *
 * Exactly one of prompt and messages. `custom_id` is `id`, `max_completion_tokens` is `max_tokens`. `repetition_penalty` is
 * `repeat_penalty`, and `repeat_last_n` is `repeat_last`. Fields of OpenAI's batches that ask for nothing (n: 1, stream: false, null) are read
 * over; tools and chat_template_kwargs go to the chat template. `url` says which
 * of prompt and messages a body has. Any other field would change what was asked for and is refused by name. */
#ifndef APR_TOOLS_BATCH_REQUEST_H
#define APR_TOOLS_BATCH_REQUEST_H

#include "formats/base/json.h"
#include "tools/run/sampling.h"

enum { APR_BATCH_MOST_STOPS = APR_MOST_STOP_TEXTS };

/* Of answers. AUTO: as the line is. */
typedef enum { APR_BATCH_AUTO, APR_BATCH_APRKIT, APR_BATCH_OPENAI } apr_batch_format;

typedef struct apr_batch_request {
    cJSON *json;
    char *id;               /* as JSON, malloc'ed; NULL: it has none */
    const char *prompt;     /* or NULL */
    const cJSON *messages;  /* or NULL: an array of objects with a role; contents that were lists of texts are strings */
    const cJSON *tools;     /* or NULL: an array */
    const cJSON *variables; /* or NULL: more of them for the chat template, an object */
    const char *model;      /* as the line has it, or NULL */
    const char *url;        /* the same */
    const char *param;      /* where reading failed: the field that is wrong, if it is one; else NULL */
    bool is_openai;         /* it is answered in the shape of OpenAI's batches */
    bool says_sampling;     /* it has a temperature or a top_p */
    bool leaves_tools_out;  /* tool_choice is "none" */
    int64_t max_tokens;
    apr_sample_options sampling;
    const char *stops[APR_BATCH_MOST_STOPS];
    size_t n_stops;
} apr_batch_request;

/* What a line does not say. */
typedef struct apr_batch_standard {
    int64_t max_tokens;
    apr_sample_options sampling;
    apr_strings stop; /* at most APR_BATCH_MOST_STOPS */
    apr_batch_format format;
    const apr_sample_options *of_model; /* of OpenAI's lines instead, where generation_config.json has its own; or NULL */
} apr_batch_standard;

/* APR_E_DAMAGED: no JSON, or no object. APR_E_USAGE: fields that are missing, unknown, or not what they must be. The id is there where it
 * could be read, also on failure. To be closed in any case. */
apr_status apr_batch_request_read(apr_batch_request *request, const char *text, size_t n_bytes, const apr_batch_standard *standard,
                                  apr_error *err);
void apr_batch_request_close(apr_batch_request *request);

/* OpenAI's newer name of the system role, for chat templates that do not know it: they would leave the message out, or write out a role
 * that the model has never seen. */
apr_status apr_batch_request_rename_developer(apr_batch_request *request, const char *chat_template, apr_error *err);

/* For chat templates that do not take a content of null: messages with tool calls get an empty one. *changed: one did. */
apr_status apr_batch_request_fill_contents(apr_batch_request *request, bool *changed, apr_error *err);

#endif
