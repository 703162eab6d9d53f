/* sampling.h - the options of sampling (runtime/session/sample.h gives their order), and the texts that end an answer.
 *
 * Each verb has its own --tokens, --temp, --top-p and --seed, because their help texts differ; APR_SAMPLING_OPTIONS are the same in all. */
#ifndef APR_TOOLS_SAMPLING_H
#define APR_TOOLS_SAMPLING_H

#include "runtime/session/sample.h"
#include "tools/cli/cli.h"
#include "tools/engine/requests/answer_text.h"

typedef struct apr_sampling {
    int64_t seed, top_k, repeat_last;
    double temp, top_p, min_p, repeat, presence, frequency;
    apr_strings stop;
} apr_sampling;

/* for_what: "", or what a verb adds to each help text, as ", for lines that do not set it" */
#define APR_SAMPLING_OPTIONS(type, member, for_what)                                                                                 \
    {"top-k",  0,         APR_OPTION_INT, "N", "0", "only the N most likely tokens" for_what "; 0: all", APR_TO(type, member.top_k), \
     .min = 0, .max = 1e9},                                                                                                          \
        {"min-p",                                                                                                                    \
         0,                                                                                                                          \
         APR_OPTION_REAL,                                                                                                            \
         "P",                                                                                                                        \
         "0",                                                                                                                        \
         "only tokens that are at least P times as likely as the most likely one" for_what,                                          \
         APR_TO(type, member.min_p),                                                                                                 \
         .min = 0,                                                                                                                   \
         .max = 1},                                                                                                                  \
        {"repeat-penalty",                                                                                                           \
         0,                                                                                                                          \
         APR_OPTION_REAL,                                                                                                            \
         "X",                                                                                                                        \
         "1",                                                                                                                        \
         "divide the logits of earlier tokens by X (multiply negative ones)" for_what "; 1: off",                                    \
         APR_TO(type, member.repeat),                                                                                                \
         .min = 0.01,                                                                                                                \
         .max = 100},                                                                                                                \
        {"repeat-last",                                                                                                              \
         0,                                                                                                                          \
         APR_OPTION_INT,                                                                                                             \
         "N",                                                                                                                        \
         "64",                                                                                                                       \
         "penalties count the last N tokens of prompt and answer; -1: all" for_what,                                                 \
         APR_TO(type, member.repeat_last),                                                                                           \
         .min = -1,                                                                                                                  \
         .max = APR_MOST_REPEAT_LAST},                                                                                               \
        {"presence-penalty",                                                                                                         \
         0,                                                                                                                          \
         APR_OPTION_REAL,                                                                                                            \
         "X",                                                                                                                        \
         "0",                                                                                                                        \
         "subtract X from the logits of earlier tokens" for_what,                                                                    \
         APR_TO(type, member.presence),                                                                                              \
         .min = -100,                                                                                                                \
         .max = 100},                                                                                                                \
        {"frequency-penalty",                                                                                                        \
         0,                                                                                                                          \
         APR_OPTION_REAL,                                                                                                            \
         "X",                                                                                                                        \
         "0",                                                                                                                        \
         "subtract X for each earlier occurrence of a token" for_what "; order: penalties, top-k, top-p, min-p, temperature",        \
         APR_TO(type, member.frequency),                                                                                             \
         .min = -100,                                                                                                                \
         .max = 100},                                                                                                                \
    {                                                                                                                                \
        "stop", 0, APR_OPTION_LIST, "TEXT", NULL, "end the answer before TEXT" for_what, APR_TO(type, member.stop)                   \
    }

apr_sample_options apr_sampling_options(const apr_sampling *asked);
/* APR_E_USAGE: a stop text that is empty, or too many of them. */
apr_status apr_check_stop_texts(const apr_strings *stop, apr_error *err);

#endif
