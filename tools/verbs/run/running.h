/* running.h - a model ready to run: file, canonical view, tokenizer, session. */
#ifndef APR_TOOLS_RUNNING_H
#define APR_TOOLS_RUNNING_H

#include "formats/tensor/model.h"
#include "runtime/check/subject.h"
#include "runtime/template/chat.h"
#include "tools/cli/cli.h"
#include "tools/verbs/convert/lora_option.h"
#include "tools/engine/device/device.h"

typedef struct apr_run_options {
    int64_t ctx, batch, threads;
    int kv;          /* index of APR_KV_NAMES */
    uint64_t memory; /* budget in bytes, 0: unlimited */
    bool stats;
    apr_device_options where;
    apr_strings lora; /* of verbs that have APR_LORA_OPTION in their tables */
} apr_run_options;

/* A verb's table has APR_RUN_OPTIONS, or its parts if --batch has another meaning as well. */
#define APR_RUN_OPTIONS(type, member, kv_default) \
    APR_CONTEXT_OPTION(type, member), APR_BATCH_OPTION(type, member), APR_RUN_MORE_OPTIONS(type, member, kv_default)
#define APR_CONTEXT_OPTION(type, member)                                                                                       \
    {                                                                                                                          \
        "ctx", 'c', APR_OPTION_INT, "N", "0", "tokens of context; 0: the model's own, at most 4096", APR_TO(type, member.ctx), \
            .min = 0, .max = 1e9, .group = "Run"                                                                               \
    }
#define APR_BATCH_HELP "prompt tokens evaluated at a time; 0: 512, or 2048 on a GPU with enough memory"
#define APR_BATCH_OPTION(type, member)                                                                                      \
    {                                                                                                                       \
        "batch", 'b', APR_OPTION_INT, "N", "0", APR_BATCH_HELP, APR_TO(type, member.batch), .min = 0, .max = APR_MOST_BATCH \
    }
#define APR_MOST_BATCH 1000000
#define APR_RUN_MORE_OPTIONS(type, member, kv_default)                                                                      \
    {"kv", 0, APR_OPTION_CHOICE, APR_KV_NAMES, kv_default, "type of the KV cache", APR_TO(type, member.kv)},                \
        {"threads", 't', APR_OPTION_INT, "N", "0", "threads; 0: all", APR_TO(type, member.threads), .min = 0, .max = 4096}, \
        {"memory",                                                                                                          \
         0,                                                                                                                 \
         APR_OPTION_SIZE,                                                                                                   \
         "SIZE",                                                                                                            \
         NULL,                                                                                                              \
         "refuse to start if the plan needs more",                                                                          \
         APR_TO(type, member.memory),                                                                                       \
         .min = APR_MIN_SIZE},                                                                                            \
        {"stats",                                                                                                           \
         0,                                                                                                                 \
         APR_OPTION_FLAG,                                                                                                   \
         NULL,                                                                                                              \
         NULL,                                                                                                              \
         "print the plan, predicted and measured memory, and the speed",                                                    \
         APR_TO(type, member.stats)},                                                                                       \
        APR_DEVICE_OPTIONS(type, member.where)

/* For commands whose options begin with an apr_run_options: will it run on a GPU? And the needs of these options. */
bool apr_runs_on_a_gpu(const apr_call *call);
extern const apr_need apr_run_needs[];

typedef struct apr_running {
    apr_model source, model;  /* as read; canonical view of it */
    apr_lora_set lora;        /* the adapters that are merged into `model` */
    apr_model views[2];       /* earlier views that `model` was made from and still refers to */
    apr_tokenizer *tokenizer; /* NULL: there is no vocabulary, or it was not opened */
    apr_chat_stops chat;      /* what ends an answer in the chat template; with the tokenizer */
    apr_session *session;
    uint64_t names_bytes, tokenizer_bytes; /* heap that these took, not in the plan; UINT64_MAX: not known */
} apr_running;

/* A zeroed apr_running may be closed; a failed open must be. n_logits: rows of logits kept at a time. */
apr_status apr_running_open(apr_running *running, const char *path, const apr_run_options *options, int64_t n_logits, apr_error *err);
/* Without the tokenizer, for callers that use token ids: the model need not have one. */
apr_status apr_running_open_weights(apr_running *running, const char *path, const apr_run_options *options, int64_t n_logits,
                                    apr_error *err);
/* Warns if the session's context is longer than the model's own. */
void apr_warn_of_context(const apr_running *r);
void apr_running_close(apr_running *running);

/* The parts of apr_running_open, in their order, for callers that do something in between. The session comes last (apr_session_open
 * with running->model). */
apr_status apr_running_open_files(apr_running *running, const char *path, apr_error *err);
/* Merges adapters into running->model, and prints them on stderr. Computes nothing yet: the session gets the sums when it reads weights. */
apr_status apr_running_merge(apr_running *running, const apr_strings *lora, apr_error *err);
apr_status apr_running_open_tokenizer(apr_running *running, apr_error *err);
/* May warn on stderr that there is no GPU. */
apr_status apr_running_options(const apr_run_options *options, int64_t n_logits, apr_session_options *session, apr_error *err);

/* Prints one line if the template ends its turns with a token that is not among the model's stop ids. */
void apr_note_turn_end(const apr_running *running, FILE *to);
/* Prints one line, and returns true, if the prompt has two begin tokens: one in its text, and one that the tokenizer adds. */
bool apr_warn_two_bos(const apr_running *running, const int32_t *ids, size_t n_ids, FILE *to);
/* Local time, as seconds of UTC that show the same clock: templates print today's date with strftime_now. */
double apr_local_seconds(void);
/* The model as the checks take it (runtime/check); borrows from running. */
apr_subject apr_running_subject(const apr_running *running);

/* --stats: plan lines, predicted against measured. JSON goes into the answer, text to stderr. */
void apr_print_stats(const apr_running *running, const apr_call *call);

#endif
